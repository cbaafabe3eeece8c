"""Driver and host -> Inventory. Runs in a hardware thread; one GPU that does not answer costs one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.errors import DriverError, NotSupported
from device_plugin.hardware.model import Inventory, UnreadableGpu
from device_plugin.hardware.sysfs import complete

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from device_plugin.hardware.driver import Driver, DriverFacts
    from device_plugin.hardware.model import Gpu, Platform
    from device_plugin.hardware.sysfs import Host


def read_inventory(
    driver: Driver, facts: DriverFacts, host: Host, platform: Callable[[Sequence[str]], Platform], *, simulated: bool
) -> Inventory:
    """Everything the opened driver and the host's files tell. Never raises `DriverError` for a single GPU."""
    gpus: list[Gpu] = []
    unreadable: list[UnreadableGpu] = []
    for index in range(facts.gpu_count):
        try:
            gpus.append(driver.read_gpu(index))
        except NotSupported:
            continue  # a device that is not meant for computing, such as a DGX Display
        except DriverError as error:
            unreadable.append(UnreadableGpu(index=index, reason=str(error)))
    inventory = Inventory(
        gpus=tuple(gpus),
        unreadable=tuple(unreadable),
        links=driver.read_links(gpus),
        driver_version=facts.driver_version,
        cuda_version=facts.cuda_version,
        platform=platform([gpu.name for gpu in gpus]),
        simulated=simulated,
    )
    return complete(inventory, host)
