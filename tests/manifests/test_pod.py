"""What the plugin's pod may and may not do, in every shipped directory."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.requires("kubectl")

SOCKETS = "/var/lib/kubelet/device-plugins"
POD_RESOURCES = "/var/lib/kubelet/pod-resources"
OWN_ACCESS = "/var/run/nvidia-container-devices/all"


def environment(container) -> dict[str, str]:
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def host_paths(pod) -> dict[str, str]:
    """Volume name to host path."""
    return {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}


def mebibytes(quantity: str) -> int:
    assert quantity.endswith("Mi")
    return int(quantity.removesuffix("Mi"))


def test_one_container_and_nothing_before_or_beside_it(pod):
    """An init container for the config stays in Created for ever when the runtime restarts meanwhile (NVIDIA/gpu-operator#991)."""
    assert len(pod["containers"]) == 1
    assert "initContainers" not in pod
    assert "shareProcessNamespace" not in pod


def test_the_container_is_unprivileged(container, overlay):
    """Policies that forbid privileged pods can admit it: NVIDIA/k8s-device-plugin#167 and NVIDIA/k8s-device-plugin#232,
    intel/intel-device-plugins-for-kubernetes#1841."""
    context = container["securityContext"]
    assert context["privileged"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context["runAsUser"] == 0
    needs_mig_monitor = overlay == "overlays/mig-mixed"
    assert context["capabilities"] == ({"drop": ["ALL"], "add": ["SYS_ADMIN"]} if needs_mig_monitor else {"drop": ["ALL"]})
    assert context["allowPrivilegeEscalation"] is needs_mig_monitor


def test_the_host_is_not_shared_beyond_the_mounts(pod):
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["automountServiceAccountToken"] is False


def test_only_the_socket_directory_and_the_cdi_directory_are_written_to(pod, container, overlay):
    """The least that works, as asked for in intel/intel-device-plugins-for-kubernetes#1841."""
    on_host = host_paths(pod)
    writable = {
        on_host[mount["name"]] for mount in container["volumeMounts"] if mount["name"] in on_host and not mount.get("readOnly")
    }
    assert writable == ({SOCKETS, "/var/run/cdi"} if overlay == "overlays/cdi" else {SOCKETS})


def test_volumes_and_mounts_match(pod, container):
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_the_config_is_a_mounted_directory(container):
    """A subPath never follows an edit (kubernetes/kubernetes#50345), and a ConfigMap given through envFrom is no config at all
    (NVIDIA/k8s-device-plugin#615)."""
    assert not any("subPath" in mount or "subPathExpr" in mount for mount in container["volumeMounts"])
    assert "envFrom" not in container


def test_sockets_and_pod_resources_are_two_mounts_at_kubelets_own_paths(pod, container):
    """With a moved kubelet root only one of the two moves (kubernetes/kubernetes#120626)."""
    on_host = host_paths(pod)
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert on_host[mounts[SOCKETS]["name"]] == SOCKETS
    assert on_host[mounts[POD_RESOURCES]["name"]] == POD_RESOURCES
    assert mounts[POD_RESOURCES]["readOnly"] is True


def test_the_plugins_own_access_does_not_hang_on_the_strategy_for_pods(pod, container, overlay):
    """A host hardened for volume mounts ignores the variable of an unprivileged container, and the plugin lost its NVML library
    (NVIDIA/k8s-device-plugin#856): so both ways of asking are taken, with every strategy."""
    on_host = host_paths(pod)
    asked = {mount["mountPath"]: on_host[mount["name"]] for mount in container["volumeMounts"] if mount["name"] in on_host}
    if overlay == "overlays/simulated":
        assert environment(container)["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert OWN_ACCESS not in asked
    else:
        assert environment(container)["NVIDIA_VISIBLE_DEVICES"] == "all"
        assert asked[OWN_ACCESS] == "/dev/null"
        assert "utility" in environment(container)["NVIDIA_DRIVER_CAPABILITIES"].split(",")


def test_mig_monitoring_comes_with_the_capability_it_needs(container, overlay):
    """Without the variable NVML answers "Insufficient Permissions" for MIG devices (NVIDIA/k8s-device-plugin#399); with it and
    without SYS_ADMIN, NVIDIA's runtime does not start the container."""
    monitors = environment(container).get("NVIDIA_MIG_MONITOR_DEVICES")
    assert monitors == ("all" if overlay == "overlays/mig-mixed" else None)
    assert ("SYS_ADMIN" in container["securityContext"]["capabilities"].get("add", [])) is (monitors is not None)


def test_nodes_without_gpus_are_left_alone(pod, overlay):
    """On CPU-only nodes the peer crash-looped (NVIDIA/k8s-device-plugin#9, NVIDIA/k8s-device-plugin#17)."""
    if overlay == "overlays/simulated":
        assert "affinity" not in pod
        return
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {term["matchExpressions"][0]["key"] for term in terms} == {
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/cpu-model.vendor_id",
        "nvidia.com/gpu.present",
    }


def test_tainted_gpu_nodes_are_reached(pod, overlay):
    tolerated = {(toleration["key"], toleration["operator"]) for toleration in pod.get("tolerations", [])}
    assert tolerated == (
        set() if overlay == "overlays/simulated" else {("CriticalAddonsOnly", "Exists"), ("nvidia.com/gpu", "Exists")}
    )


def test_the_pod_outranks_workloads_and_says_what_it_needs(pod, container):
    """Priority and requests were missing from the peer's chart (NVIDIA/k8s-device-plugin#1467); under limits that were too tight
    the peer was killed for memory (zalando-incubator/kubernetes-on-aws#7065)."""
    assert pod["priorityClassName"] == "system-node-critical"
    resources = container["resources"]
    assert mebibytes(resources["requests"]["memory"]) == 64
    assert mebibytes(resources["limits"]["memory"]) >= 2 * mebibytes(resources["requests"]["memory"])
    assert "cpu" in resources["requests"]
    assert "cpu" not in resources["limits"]


def test_a_rollout_takes_one_node_at_a_time_and_never_two_plugins_on_one(objects):
    """A rollout drops a node's GPUs for a moment (NVIDIA/gpu-operator#596), and a surge would put two into one directory."""
    strategy = objects["DaemonSet"]["spec"]["updateStrategy"]
    assert strategy["type"] == "RollingUpdate"
    assert strategy["rollingUpdate"]["maxUnavailable"] == 1
    assert strategy["rollingUpdate"].get("maxSurge", 0) == 0


def test_the_process_is_given_the_time_it_takes_to_end(pod):
    assert 5 < pod["terminationGracePeriodSeconds"] <= 30


def test_simulation_is_switched_on_by_its_overlay_alone(container, overlay):
    """Nothing but the DaemonSet's own arguments can simulate hardware: no annotation, no variable (NVIDIA/k8s-test-infra#591)."""
    simulating = [argument for argument in container["args"] if argument.startswith("--simulate")]
    assert simulating == (["--simulate=dgx-a100"] if overlay == "overlays/simulated" else [])


def test_cdi_specifications_can_be_written_where_the_runtime_looks(pod, container, overlay):
    """The driver's files are read below /driver-root and the specification is written to /var/run/cdi."""
    on_host = host_paths(pod)
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    if overlay != "overlays/cdi":
        assert not {"/driver-root", "/var/run/cdi"} & mounts.keys()
        return
    assert on_host[mounts["/var/run/cdi"]["name"]] == "/var/run/cdi"
    assert on_host[mounts["/driver-root"]["name"]] == "/"
    assert mounts["/driver-root"]["readOnly"] is True
    assert mounts["/driver-root"]["mountPropagation"] == "HostToContainer"
