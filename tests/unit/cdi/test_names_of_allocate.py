"""Every CDI name an answer can hold is one that the written specifications define."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device_plugin.allocation.model import Injection
from device_plugin.allocation.response import allocate
from device_plugin.allocation.table import build_table
from device_plugin.cdi import build_specs, check_names, list_devices, options_from, write_specs
from device_plugin.config.model import Config, Flags, Imex, SharedResource, Sharing, TimeSlicing
from device_plugin.config.values import DeviceIdStrategy, DeviceListStrategy, MigStrategy
from device_plugin.serving.served import ServedDevice, ServedResource
from device_plugin.sharing.plan import plan


@pytest.mark.parametrize("replicas", [1, 12])
@pytest.mark.parametrize("id_strategy", DeviceIdStrategy)
@pytest.mark.parametrize("mig_strategy", MigStrategy)
def test_every_name_resolves(mig_strategy, id_strategy, replicas, gpu, mig, mig_inventory, roots, tmp_path):
    """Whole, MIG and shared devices, by UUID and by index, with the classes that go along."""
    split = [replace(mig_inventory.gpus[0]), gpu(1, mig_enabled=True, mig_devices=(mig(1, 0), mig(1, 1)))]
    gpus = split if mig_strategy is MigStrategy.SINGLE else mig_inventory.gpus
    inventory = replace(mig_inventory, gpus=tuple(gpus), imex_channels=(0,), extra_nodes={"gds": ("/dev/nvidia-fs0",)})
    slicing = TimeSlicing(resources=(SharedResource(name="nvidia.com/gpu", replicas=replicas),))
    config = Config(
        flags=Flags(mig_strategy=mig_strategy, gds_enabled=True),
        sharing=Sharing(time_slicing=slicing if replicas > 1 else None),
        imex=Imex(channel_ids=[0]),
    )
    built = build_specs(inventory, roots, options_from(config))
    write_specs(built.specs, tmp_path / "cdi", still_named=())
    injection = Injection(
        strategies=(DeviceListStrategy.CDI_CRI,),
        id_strategy=id_strategy,
        imex_channels=(0,),
        extras=("gds",),
        cdi_classes=tuple(spec.device_class for spec in built.specs),
    )

    names: list[str] = []
    for resource in plan(inventory, config).resources:
        served = ServedResource(resource.name, tuple(ServedDevice(device) for device in resource.devices), resource.policy)
        table = build_table(served, (), injection)
        names += [name for device in resource.devices for name in allocate(table, [device.id]).cdi_devices]

    assert len(set(names)) >= 4
    assert check_names(names, list_devices([tmp_path / "cdi"])) == {}
