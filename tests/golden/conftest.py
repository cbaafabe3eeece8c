"""The recorded hardware as a simulated machine, so that the whole plugin can run on it."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

import pytest

from device_plugin.simulation.instances import WantedInstance, place_instances
from device_plugin.simulation.machine import Machine, SimulatedGpu

NODES = Path(__file__).parent / "nodes"
SWITCH = "FFFFFFFF:FF:FF.0"


def _gpu(recorded, index, nvlinks, rows):
    values = recorded["gpus"][index]
    memory = values["memoryBytes"]
    wanted = [
        WantedInstance(row["profile"], row["uuid"], int(row["gpuInstanceId"]), int(row["computeInstanceId"]))
        for row in rows
        if int(row["gpu"]) == index
    ]
    return SimulatedGpu(
        uuid=values["uuid"],
        name=values["name"],
        pci_bus_id=values["pciBusId"],
        minor=values["minor"],
        memory_bytes=memory,
        compute_capability=tuple(values["computeCapability"]),
        numa=index // 4 if len(recorded["gpus"]) > 4 else 0,
        mig_capable="A100" in values["name"] or "H100" in values["name"],
        mig_enabled=bool(wanted) or values["migMode"][0] == 1,
        mig=place_instances(values["uuid"], memory, wanted, ()),
        switch_links=nvlinks.get(SWITCH, 0),
        ecc_uncorrectable=0,
    )


@pytest.fixture
def golden_machine():
    """The Machine of `node-<name>.json`, with the MIG devices of a layout if one is named. SimulatedNode takes it."""

    def make(name: str, mig_layout: str | None = None) -> Machine:
        recorded = json.loads((NODES / f"node-{name}.json").read_text())
        rows = json.loads((NODES / "mig-layouts.json").read_text())[mig_layout] if mig_layout else []
        nvlinks = recorded["activeNvLinksByRemotePciBusId"]
        gpus = tuple(_gpu(recorded, index, nvlinks[index], rows) for index in range(len(recorded["gpus"])))
        by_address = {gpu.pci_bus_id: gpu.uuid for gpu in gpus}
        return Machine(
            name=name,
            driver_version=recorded["driver"],
            cuda_version=recorded["cuda"],
            gpus=gpus,
            ancestors=MappingProxyType(
                {
                    frozenset((gpus[row].uuid, gpus[column].uuid)): level
                    for row, levels in enumerate(recorded["commonAncestor"])
                    for column, level in enumerate(levels)
                    if level is not None
                }
            ),
            nvlinks=MappingProxyType(
                {
                    (gpus[index].uuid, by_address[address]): count
                    for index, links in enumerate(nvlinks)
                    for address, count in links.items()
                    if address in by_address
                }
            ),
        )

    return make
