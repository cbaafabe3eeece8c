"""Every shipped directory renders, and Kubernetes would take what it renders."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from device_plugin.config.model import Config
from device_plugin.config.values import DeviceListStrategy, MigStrategy

ROOT = Path(__file__).resolve().parents[2]
OLDEST, NEWEST = "1.28", "1.37"

pytestmark = pytest.mark.requires("kubectl")


def config_of(objects) -> Config:
    text = objects["ConfigMap"]["data"]["config.yaml"]
    return Config.model_validate_json(json.dumps(yaml.safe_load(text)))


def test_the_named_overlays_are_shipped():
    shipped = {path.name for path in (ROOT / "manifests" / "overlays").iterdir()}
    assert shipped >= {"time-slicing", "mig-mixed", "simulated", "cdi"}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_knows_every_field(objects, version):
    for item in objects.values():
        kubernetes_validate.validate(item, version, strict=True)


def test_a_misspelt_field_would_be_noticed(objects):
    """The check above is only worth something if strict means strict."""
    daemon_set = json.loads(json.dumps(objects["DaemonSet"]))
    daemon_set["spec"]["template"]["spec"]["tolerationz"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(daemon_set, NEWEST, strict=True)


def test_everything_stands_in_one_namespace(objects):
    assert set(objects) == {"Namespace", "ConfigMap", "DaemonSet"}
    namespace = objects["Namespace"]["metadata"]["name"]
    assert {objects[kind]["metadata"]["namespace"] for kind in ("ConfigMap", "DaemonSet")} == {namespace}


def test_the_config_in_the_config_map_is_valid(objects):
    """A DaemonSet rendered with an unusable config was NVIDIA/gpu-operator#2641."""
    assert config_of(objects).version == "v1"


def test_the_overlay_configures_what_its_name_says(objects, overlay):
    config = config_of(objects)
    found = {
        "time-slicing": bool(config.sharing.time_slicing),
        "mig-mixed": config.flags.mig_strategy is MigStrategy.MIXED,
        "cdi": config.flags.plugin.device_list_strategy == (DeviceListStrategy.CDI_CRI,),
    }
    assert {name for name, on in found.items() if on} == {Path(overlay).name} & found.keys()


def test_the_container_reads_the_config_that_is_mounted(objects, container, pod):
    [option] = [argument for argument in container["args"] if argument.startswith("--config-file=")]
    path = Path(option.partition("=")[2])
    [mount] = [mount for mount in container["volumeMounts"] if mount["mountPath"] == str(path.parent)]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    assert volume["configMap"] == {"name": objects["ConfigMap"]["metadata"]["name"]}
    assert path.name in objects["ConfigMap"]["data"]


def test_the_image_is_this_version_from_no_particular_registry(container):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert container["image"] == f"gpu-device-plugin:{version}"


def test_the_selector_finds_exactly_its_own_pods(objects):
    """Selectors shared by two DaemonSets made each count the other's pods (NVIDIA/k8s-device-plugin#982)."""
    spec = objects["DaemonSet"]["spec"]
    assert (
        spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == {"app.kubernetes.io/name": "gpu-device-plugin"}
    )
