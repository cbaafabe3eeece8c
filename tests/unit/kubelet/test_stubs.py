"""The committed gRPC stubs are those that the contracts in api/ give."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
STUBS = ROOT / "device_plugin/kubelet/api"


def test_the_committed_stubs_are_those_of_the_contracts(tmp_path):
    """Generating the stubs again, as `make protos` does, gives the committed files byte for byte."""
    protos = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "api").rglob("*.proto"))
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", "device_plugin/kubelet/api=api", *outputs, *protos],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
    )

    made = tmp_path / "device_plugin/kubelet/api"
    generated = {str(path.relative_to(made)): path.read_text() for path in made.rglob("*") if path.is_file()}
    committed = {str(path.relative_to(STUBS)): path.read_text() for path in STUBS.rglob("*_pb2*") if path.suffix in (".py", ".pyi")}
    assert generated == committed


def test_the_stubs_need_no_package_outside_ours():
    """Importing the stubs brings in no top-level package `api`: a wheel that holds `device_plugin` alone is complete."""
    code = (
        "import sys; from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2_grpc;"
        "from device_plugin.kubelet.api.podresources.v1 import podresources_pb2_grpc; sys.exit('api' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
