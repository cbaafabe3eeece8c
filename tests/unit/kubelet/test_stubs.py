"""The committed gRPC stubs are those that the contracts in api/ give."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2
from device_plugin.kubelet.api.podresources.v1 import podresources_pb2

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


@pytest.mark.parametrize(
    ("module", "message", "numbers"),
    [
        (deviceplugin_pb2, "DevicePluginOptions", {"pre_start_required": 1, "get_preferred_allocation_available": 2}),
        (deviceplugin_pb2, "RegisterRequest", {"version": 1, "endpoint": 2, "resource_name": 3, "options": 4}),
        (deviceplugin_pb2, "Device", {"ID": 1, "health": 2, "topology": 3}),
        (
            deviceplugin_pb2,
            "ContainerPreferredAllocationRequest",
            {"available_deviceIDs": 1, "must_include_deviceIDs": 2, "allocation_size": 3},
        ),
        (
            deviceplugin_pb2,
            "ContainerAllocateResponse",
            {"envs": 1, "mounts": 2, "devices": 3, "annotations": 4, "cdi_devices": 5},
        ),
        (deviceplugin_pb2, "Mount", {"container_path": 1, "host_path": 2, "read_only": 3}),
        (deviceplugin_pb2, "DeviceSpec", {"container_path": 1, "host_path": 2, "permissions": 3}),
        (podresources_pb2, "PodResources", {"name": 1, "namespace": 2, "containers": 3}),
        (
            podresources_pb2,
            "ContainerResources",
            {"name": 1, "devices": 2, "cpu_ids": 3, "memory": 4, "dynamic_resources": 5},
        ),
        (podresources_pb2, "ContainerDevices", {"resource_name": 1, "device_ids": 2, "topology": 3}),
    ],
)
def test_field_numbers_are_those_on_the_wire(module, message, numbers):
    """The numbers that kubelet reads and writes; a slip here would be silent."""
    fields = module.DESCRIPTOR.message_types_by_name[message].fields
    assert {field.name: field.number for field in fields} == numbers


@pytest.mark.parametrize(
    ("module", "service", "methods"),
    [
        (deviceplugin_pb2, "v1beta1.Registration", ["Register"]),
        (
            deviceplugin_pb2,
            "v1beta1.DevicePlugin",
            ["Allocate", "GetDevicePluginOptions", "GetPreferredAllocation", "ListAndWatch", "PreStartContainer"],
        ),
        (podresources_pb2, "v1.PodResourcesLister", ["Get", "GetAllocatableResources", "List"]),
    ],
)
def test_services_have_kubelets_paths(module, service, methods):
    """Package, service and method are the path of a call on the wire."""
    described = module.DESCRIPTOR.services_by_name[service.rpartition(".")[2]]
    assert (described.full_name, sorted(method.name for method in described.methods)) == (service, methods)
