"""Whatever the node and whatever the config, the Offer keeps its promises."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from device_plugin.config.model import Config
from device_plugin.config.values import parse_resource_name
from device_plugin.hardware.model import ComputeMode, Gpu, Inventory, MigAttributes, MigDevice, Platform, UnreadableGpu
from device_plugin.problems import ProblemKind
from device_plugin.sharing.message import KUBELET_LIMIT_BYTES, list_bytes
from device_plugin.sharing.offer import Offer, PreferencePolicy
from device_plugin.sharing.plan import kept_shape, plan
from device_plugin.sharing.usage import describe_gpus

PROFILES = st.one_of(
    st.sampled_from(["1g.5gb", "1g.5gb+me", "1c.3g.20gb", "3g.20gb", "1g.24gb-me", "", "1g/5gb", None]), st.text(max_size=6)
)
NAMES = st.sampled_from(["gpu", "gpus", "gpu.shared", "mig-1g.5gb", "mig-1g.5gb.me", "example.com/a100", "pool", "g" * 60])
PRODUCTS = st.sampled_from(["NVIDIA A100-SXM4-40GB", "Tesla T4", "", "NVIDIA L4"])
PATTERNS = st.sampled_from(["*", "*A100*", "Tesla T4", "1g.*", "*gb", "**", "nothing", "A*0"])
POLICIES = st.sampled_from(["distributed", "packed", "distinct"])
SHAPES = st.builds(
    MigAttributes,
    multiprocessor_count=st.sampled_from([14, 28]),
    shared_copy_engine_count=st.just(1),
    shared_decoder_count=st.just(0),
    shared_encoder_count=st.just(0),
    shared_jpeg_count=st.just(0),
    shared_ofa_count=st.just(0),
    gpu_instance_slice_count=st.just(1),
    compute_instance_slice_count=st.just(1),
    memory_size_mib=st.just(4864),
)


def uuid(kind: str, number: int) -> str:
    return f"{kind}-00000000-0000-0000-0000-{number:012d}"


def odd_uuid(kind: str, number: int) -> st.SearchStrategy[str]:
    """Mostly the device's own UUID; now and then none, a duplicate, a replica's ID, a word of the runtime or any text."""
    own = uuid(kind, number)
    return st.one_of(*[st.just(own)] * 8, st.sampled_from(["", uuid("GPU", 0), f"{uuid('GPU', 0)}::0", "all"]), st.text(max_size=5))


@st.composite
def mig_devices(draw: st.DrawFn, gpu: int) -> tuple[MigDevice, ...]:
    devices = []
    for index in draw(st.lists(st.integers(0, 12), unique=True, max_size=4)):
        device = MigDevice(
            uuid=draw(odd_uuid("MIG", gpu * 100 + index)),
            index=index,
            gpu_instance_id=draw(st.sampled_from([None, index])),
            compute_instance_id=draw(st.sampled_from([None, 0])),
            profile=draw(PROFILES),
            attributes=draw(st.none() | SHAPES),
            fault=draw(st.sampled_from([None, None, None, "it does not answer"])),
        )
        devices.append(device)
    return tuple(devices)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    indexes = draw(st.lists(st.integers(0, 11), unique=True, max_size=6))
    lost = [index for index in indexes if draw(st.integers(0, 9)) == 0]
    gpus = tuple(
        Gpu(
            index=index,
            uuid=draw(odd_uuid("GPU", index)),
            name=draw(PRODUCTS),
            pci_bus_id=draw(st.sampled_from([None, f"00000000:{index:02X}:00.0", "?"])),
            compute_mode=draw(st.none() | st.sampled_from(ComputeMode)),
            numa_node=draw(st.sampled_from([None, -1, 0, 1, 300])),
            mig_enabled=draw(st.booleans()),
            mig_devices=draw(mig_devices(index)),
            faults=draw(st.sampled_from([(), (), ("its PCI address is unknown",)])),
        )
        for index in indexes
        if index not in lost
    )
    unreadable = tuple(UnreadableGpu(index, "GPU is lost", draw(st.sampled_from([None, uuid("GPU", index)]))) for index in lost)
    platform = draw(st.sampled_from([Platform.NVML] * 7 + [Platform.WSL, Platform.TEGRA, Platform.UNKNOWN]))
    return Inventory(gpus=gpus, unreadable=unreadable, platform=platform)


REFERENCES = st.one_of(
    st.integers(0, 12),
    st.builds(lambda gpu, mig: f"{gpu}:{mig}", st.integers(0, 11), st.integers(0, 12)),
    st.builds(uuid, st.just("GPU"), st.integers(0, 11)),
    st.builds(uuid, st.just("MIG"), st.integers(0, 1200)),
    st.builds(lambda gpu, gi: f"MIG-{uuid('GPU', gpu)}/{gi}/0", st.integers(0, 11), st.integers(0, 12)),
)
SELECTORS = st.one_of(
    st.integers(0, 12), st.builds(uuid, st.just("GPU"), st.integers(0, 11)), st.sampled_from(["03:00.0", "0000:0B:00.0"]), PATTERNS
)


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": draw(NAMES),
        "replicas": draw(st.one_of(*[st.integers(1, 9)] * 7, st.sampled_from([16_000, 10**7, 10**40]))),
        "devices": draw(st.one_of(st.just("all"), st.integers(1, 9), st.lists(REFERENCES, min_size=1, max_size=3, unique_by=str))),
    }
    if draw(st.booleans()):
        entry["rename"] = draw(NAMES)
    if draw(st.booleans()):
        entry["allocationPolicy"] = draw(POLICIES)
    return entry


@st.composite
def configs(draw: st.DrawFn) -> Config:
    patterns = st.lists(st.builds(lambda pattern, name: {"pattern": pattern, "name": name}, PATTERNS, NAMES), max_size=2)
    data: dict[str, Any] = {
        "flags": {
            "migStrategy": draw(st.sampled_from(["none", "single", "mixed"])),
            "deviceDiscoveryStrategy": draw(st.sampled_from(["auto", "auto", "nvml", "tegra"])),
            "plugin": {"sharedDevicesAllocationPolicy": draw(POLICIES)},
        },
        "resources": {"gpus": draw(patterns), "mig": draw(patterns)},
        "devices": {
            "include": draw(st.one_of(st.just([]), st.lists(SELECTORS, max_size=3))),
            "exclude": draw(st.one_of(st.just([]), st.lists(SELECTORS, max_size=1))),
        },
    }
    if shared := draw(st.lists(entries(), max_size=4)):
        data["sharing"] = {
            "timeSlicing": {
                "renameByDefault": draw(st.booleans()),
                "failRequestsGreaterThanOne": draw(st.booleans()),
                "resources": shared,
            }
        }
    return Config.model_validate_json(json.dumps(data))


def check(inventory: Inventory, offer: Offer) -> None:
    devices = [(resource, device) for resource in offer.resources for device in resource.devices]
    ids = [device.id for _, device in devices]
    assert len(ids) == len(set(ids)), "an ID is offered twice"
    names = [resource.name for resource in offer.resources]
    assert names == sorted(set(names))

    owners: dict[str, tuple[str, bool]] = {}
    for resource, device in devices:
        assert owners.setdefault(device.hardware_id, (resource.name, device.is_shared)) == (resource.name, device.is_shared)
        assert device.id == (f"{device.hardware_id}::{device.replica}" if device.is_shared else device.hardware_id)
    whole = {device.gpu_uuid for _, device in devices if not device.is_mig}
    assert not whole & {device.gpu_uuid for _, device in devices if device.is_mig}, "a GPU is offered whole and in parts"
    if inventory.platform is not Platform.WSL:
        known = {gpu.uuid for gpu in inventory.gpus} | {mig.uuid for gpu in inventory.gpus for mig in gpu.mig_devices}
        assert set(owners) <= known

    for resource in offer.resources:
        assert resource.devices
        assert parse_resource_name(resource.name) == resource.name
        assert list_bytes(resource.devices) <= KUBELET_LIMIT_BYTES
        order = [(*map(int, device.index.split(":")), device.replica or 0) for device in resource.devices if device.index != "all"]
        assert order == sorted(order)
        plain = all(not (device.is_shared or device.is_mig or device.hardware_id == "all") for device in resource.devices)
        assert plain == (resource.policy is PreferencePolicy.ALIGNED)


@settings(max_examples=250, deadline=None)
@given(inventories(), configs(), st.data())
def test_every_offer_keeps_its_promises(inventory, config, data):
    """No exception, unique IDs, no GPU both whole and shared or split, valid names, lists that kubelet takes, a defined order."""
    offer = plan(inventory, config, keep_shape=data.draw(st.none() | SHAPES | st.just("whole GPU")))
    check(inventory, offer)
    assert len(describe_gpus(inventory, offer)) == len(inventory.gpus) + len(inventory.unreadable)


@settings(max_examples=100, deadline=None)
@given(inventories(), configs(), st.randoms(use_true_random=False))
def test_the_same_node_in_any_order_gives_the_same_offer(inventory, config, random):
    """Twice the same bytes; and the order in which the driver lists GPUs and MIG devices changes nothing."""
    offer = plan(inventory, config)
    assert repr(plan(inventory, config)) == repr(offer)
    gpus = [replace(gpu, mig_devices=tuple(random.sample(gpu.mig_devices, len(gpu.mig_devices)))) for gpu in inventory.gpus]
    unreadable = tuple(random.sample(inventory.unreadable, len(inventory.unreadable)))
    shuffled = replace(inventory, gpus=tuple(random.sample(gpus, len(gpus))), unreadable=unreadable)
    assert repr(plan(shuffled, config)) == repr(offer)


@settings(max_examples=100, deadline=None)
@given(inventories(), configs())
def test_what_is_missing_is_said(inventory, config):
    """Every GPU is offered, or has a reason; a device that does not fit kubelet's message never goes without an error."""
    offer = plan(inventory, config)
    for row in describe_gpus(inventory, offer):
        assert row.uses or row.withheld
    full = [item for item in offer.withheld if "is full" in item.reason]
    assert not full or offer.errors(ProblemKind.TOO_LARGE)


@settings(max_examples=60, deadline=None)
@given(inventories(), configs())
def test_the_kept_shape_keeps_what_is_served(inventory, config):
    """Planning the same node with the shape it serves changes nothing: a hardware change alone moves the Offer."""
    offer = plan(inventory, config)
    assert plan(inventory, config, keep_shape=kept_shape(inventory, offer)).resources == offer.resources
