"""The Offer as a whole: policies, kubelet's limit, hardware faults, platforms, order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device_plugin.hardware.model import ComputeMode, Inventory, Platform, UnreadableGpu
from device_plugin.problems import Origin, ProblemKind, Severity
from device_plugin.sharing.limits import fit_shares
from device_plugin.sharing.message import KUBELET_LIMIT_BYTES, list_bytes, replicas_bytes
from device_plugin.sharing.offer import PreferencePolicy
from device_plugin.sharing.plan import plan
from device_plugin.sharing.replicas import Share
from device_plugin.sharing.report import Report

GPU = "nvidia.com/gpu"
ENTRIES = "sharing.timeSlicing.resources"


def entry(replicas: int, devices: object = "all", name: str = "gpu", **more: object) -> dict[str, object]:
    return {"name": name, "replicas": replicas, "devices": devices, **more}


class TestPolicy:
    """How GetPreferredAllocation will choose in a resource."""

    @pytest.mark.parametrize("flag", ["distributed", "packed", "distinct"])
    def test_the_flag_is_for_replicas_and_mig_devices(self, make, flag):
        """Whole unshared GPUs are chosen by their links whatever the flag says."""
        flags = {"plugin": {"sharedDevicesAllocationPolicy": flag}}
        whole = plan(make.gpus(2), make.config({"flags": flags})).resource(GPU)
        shared = plan(make.gpus(2), make.config({"flags": flags, "sharing": {"timeSlicing": {"resources": [entry(2)]}}})).resource(
            GPU
        )
        split = plan(make.node(make.gpu(0, "1g.5gb")), make.config({"flags": flags}, mig="single")).resource(GPU)
        assert (PreferencePolicy.ALIGNED, PreferencePolicy(flag), PreferencePolicy(flag)) == (
            whole.policy,
            shared.policy,
            split.policy,
        )

    def test_an_entry_has_its_own(self, make):
        """`distinct` for one resource (NVIDIA/k8s-device-plugin#491: both slices of one GPU where two cards were wanted)."""
        config = make.slicing(entry(2, [0], rename="a", allocationPolicy="distinct"), entry(2, [1], rename="b"))
        policies = {resource.name: resource.policy for resource in plan(make.gpus(2), config).resources}
        assert policies == {"nvidia.com/a": PreferencePolicy.DISTINCT, "nvidia.com/b": PreferencePolicy.DISTRIBUTED}

    def test_one_whole_gpu_beside_replicas_makes_it_greedy(self, make):
        """A resource that mixes whole and replicated devices follows the stated policy."""
        config = make.slicing(entry(2, [0], allocationPolicy="packed"))
        assert PreferencePolicy.PACKED is plan(make.gpus(2), config).resource(GPU).policy

    def test_entries_that_disagree_about_one_resource(self, make):
        """The earlier policy holds, the later is an error at its place."""
        config = make.slicing(entry(2, [0], allocationPolicy="packed"), entry(2, [1]), entry(2, [2], allocationPolicy="distinct"))
        offer = plan(make.gpus(3), config)
        assert PreferencePolicy.PACKED is offer.resource(GPU).policy
        (problem,) = offer.errors()
        assert (ProblemKind.CONTRADICTION, f"{ENTRIES}[2].allocationPolicy") == (problem.kind, problem.origin.path)
        assert problem.message.startswith("nvidia.com/gpu cannot be distinct and packed")

    def test_a_policy_for_whole_gpus_is_said_to_do_nothing(self, make, look):
        """Accepted and ignored is the fault; the warning says who chooses instead."""
        offer = plan(make.gpus(2), make.slicing(entry(1, allocationPolicy="packed")))
        assert PreferencePolicy.ALIGNED is offer.resource(GPU).policy
        assert "packed has no effect" in look.only(offer, ProblemKind.CONFIG).message

    @pytest.mark.parametrize(("replicas", "expected"), [(1, False), (2, True)])
    def test_failing_requests_greater_than_one_is_for_shared_devices(self, make, replicas, expected):
        """An unshared resource takes requests of any size."""
        config = make.slicing(entry(replicas), failRequestsGreaterThanOne=True)
        assert expected is plan(make.gpus(2), config).resource(GPU).fail_requests_greater_than_one


class TestLimit:
    """Kubelet ends the stream of a list over 4,194,304 bytes (kubernetes/kubernetes#109304): no Offer makes one."""

    def most(self, make, offer, look) -> int:
        problem = look.only(offer, ProblemKind.TOO_LARGE)
        return int(problem.message.partition("at most: at most ")[2].partition(" ")[0])

    def test_the_error_names_the_largest_count_that_fits(self, make, look):
        """The count named makes a list that fits, and one more does not: the boundary is exact (23 MB were sent for eight H20 once,
        Project-HAMi/volcano-vgpu-device-plugin#99).
        """
        offer = plan(make.gpus(8), make.slicing(entry(20_000)))
        most = self.most(make, offer, look)
        fits = plan(make.gpus(8), make.slicing(entry(most)))
        assert not fits.errors()
        assert list_bytes(fits.resource(GPU).devices) <= KUBELET_LIMIT_BYTES
        (problem,) = plan(make.gpus(8), make.slicing(entry(most + 1))).errors()
        assert ProblemKind.TOO_LARGE is problem.kind

    def test_gpus_are_served_in_index_order_as_far_as_they_fit(self, make, look):
        """Whole GPUs of replicas are left out at the end; the next would not have fitted."""
        offer = plan(make.gpus(8), make.slicing(entry(20_000)))
        (resource,) = offer.resources
        served = sorted({device.index for device in resource.devices})
        assert [str(index) for index in range(len(served))] == served
        assert 20_000 * len(served) == len(resource.devices)
        size = list_bytes(resource.devices)
        assert size <= KUBELET_LIMIT_BYTES < size * (len(served) + 1) / len(served)
        assert [str(index) for index in range(len(served), 8)] == [item.index for item in offer.withheld]
        problem = look.only(offer, ProblemKind.TOO_LARGE)
        assert (Severity.ERROR, f"{ENTRIES}[0].replicas") == (problem.severity, problem.origin.path)

    def test_a_first_gpu_that_is_too_large_alone_is_cut(self, make, look):
        """A node is not lost to a slip of some zeros; and a count of any size costs no memory."""
        offer = plan(make.gpus(2), make.slicing(entry(10**30)))
        size = list_bytes(offer.resource(GPU).devices)
        assert KUBELET_LIMIT_BYTES - 100 < size <= KUBELET_LIMIT_BYTES
        assert {"0"} == set(look.indexes(offer, GPU))

    def test_a_number_of_thousands_of_digits_is_survived(self, make):
        """A message that would print it does not raise."""
        config = make.slicing(entry(2, 1, rename="x"))
        slicing = config.sharing.time_slicing
        entries = (slicing.resources[0].model_copy(update={"replicas": 10**5000}),)
        sharing = config.sharing.model_copy(update={"time_slicing": slicing.model_copy(update={"resources": entries})})
        offer = plan(make.gpus(1), config.model_copy(update={"sharing": sharing}))
        assert [problem.kind for problem in offer.errors()] == [ProblemKind.TOO_LARGE]

    def test_where_not_even_one_device_fits_none_is_offered(self, make):
        """A list that is too long by one device costs all of them."""
        config = make.config()
        device = plan(make.gpus(1), config).resource(GPU).devices[0]
        assert fit_shares(GPU, [Share(GPU, device, 3)], Report(config), limit_bytes=20) == []

    @pytest.mark.parametrize(("spare", "served"), [(0, 2), (-1, 1)])
    def test_a_list_of_exactly_the_limit_is_taken(self, make, spare, served):
        """Kubelet takes the limit itself and not one byte more."""
        config = make.config()
        devices = plan(make.gpus(2), config).resource(GPU).devices
        shares = [Share(GPU, device) for device in devices]
        report = Report(config)
        assert len(fit_shares(GPU, shares, report, limit_bytes=list_bytes(devices) + spare)) == served
        assert bool(report.problems) == (served < 2)

    def test_each_resource_has_its_own_limit(self, make, look):
        """Two lists that fit are two lists."""
        config = make.slicing(entry(40_000, [0], rename="a"), entry(40_000, [1], rename="b"))
        assert look.offered(make.gpus(2), config) == {"nvidia.com/a": 40_000, "nvidia.com/b": 40_000}

    def test_a_list_must_fit_when_every_device_is_unhealthy(self, make):
        """`Unhealthy` is the longer word: a count that fits while all is well but not after a fault is refused."""
        whole = plan(make.gpus(8), make.config()).resource(GPU).devices
        count = 8100
        healthy = sum(replicas_bytes(device, count, health="Healthy") for device in whole)
        assert healthy <= KUBELET_LIMIT_BYTES < sum(replicas_bytes(device, count) for device in whole)
        assert plan(make.gpus(8), make.slicing(entry(count))).errors(ProblemKind.TOO_LARGE)


class TestHardware:
    """One bad GPU takes out one GPU."""

    def test_an_unreadable_gpu_is_an_error_and_no_more(self, make, look):
        """The others are offered, under their own indexes."""
        node = make.node(make.gpu(0), make.gpu(2), unreadable=(UnreadableGpu(1, "GPU is lost", make.uuid(1)),))
        offer = plan(node, make.config())
        assert look.indexes(offer, GPU) == ["0", "2"]
        problem = look.only(offer, ProblemKind.HARDWARE)
        assert (Severity.ERROR, Origin("node")) == (problem.severity, problem.origin)
        assert f"GPU 1 ({make.uuid(1)}) cannot be read and is withheld, the others are not: GPU is lost" == problem.message

    @pytest.mark.parametrize("uuid", ["", "GPU::0", "all", "GPU 1", "GPU-0,GPU-1", "none"])
    def test_a_gpu_without_a_usable_uuid_is_withheld(self, make, look, uuid):
        """An ID must be unique, survive `<id>::<n>` and a comma list, and be no word of the runtime such as `all`."""
        offer = plan(make.node(make.gpu(0), make.gpu(1, uuid=uuid)), make.config())
        assert look.indexes(offer, GPU) == ["0"]
        assert "GPU 1" in offer.errors(ProblemKind.HARDWARE)[0].message

    def test_an_id_follows_its_gpu_and_not_its_index(self, make):
        """After a reboot that counted the GPUs in another order one was given to two pods (NVIDIA/k8s-device-plugin#135,
        NVIDIA/k8s-device-plugin#536).

        IDs are UUIDs: the same ones, each still of the same GPU.
        """
        gpus = [make.gpu(0), make.gpu(1, "3g.20gb", "3g.20gb"), make.gpu(2)]
        turned = [replace(gpu, index=2 - gpu.index) for gpu in gpus]
        config = make.slicing(entry(2), mig="mixed")
        before, after = (
            {device.id: device.gpu_uuid for resource in plan(make.node(*node), config).resources for device in resource.devices}
            for node in (gpus, turned)
        )
        assert before == after

    def test_of_two_gpus_with_one_uuid_the_first_keeps_it(self, make, look):
        """Two devices of one ID count twice in kubelet; the later GPU is withheld with an error."""
        offer = plan(make.node(make.gpu(1), make.gpu(0, uuid=make.uuid(1))), make.config())
        assert look.indexes(offer, GPU) == ["0"]
        assert "is also that of GPU 0" in offer.errors(ProblemKind.HARDWARE)[0].message

    def test_missing_properties_are_no_problem(self, make, look):
        """No memory, minor, NUMA node, PCI address or capability (NVIDIA/k8s-device-plugin#1482 on GB10,
        NVIDIA/k8s-device-plugin#332 on WSL2)."""
        gpu = make.gpu(0, minor=None, pci_bus_id=None, numa_node=None, device_nodes=())
        offer = plan(make.node(gpu), make.config())
        assert look.counts(offer) == {GPU: 1}
        assert not offer.problems
        assert offer.resources[0].devices[0].numa_node is None

    def test_a_negative_numa_node_is_no_topology(self, make):
        """The kernel says -1 for "no node"; a topology of -1 would make restricted policies refuse pods."""
        assert plan(make.gpus(1, numa_node=-1), make.config()).resources[0].devices[0].numa_node is None

    def test_faults_are_warnings_and_do_not_withhold(self, make, look):
        """What could not be read is said of its GPU, which is offered all the same."""
        offer = plan(make.node(make.gpu(0, faults=("its MIG mode is unknown: Unknown Error",))), make.config())
        assert look.counts(offer) == {GPU: 1}
        problem = look.only(offer, ProblemKind.HARDWARE)
        assert Severity.WARNING is problem.severity
        assert problem.message.endswith("its MIG mode is unknown: Unknown Error")

    def test_a_prohibited_gpu_is_said(self, make, look):
        """A GPU that lets no program in is offered with a warning that says how to open it."""
        problem = look.only(plan(make.gpus(3, compute_mode=ComputeMode.PROHIBITED), make.config()), ProblemKind.HARDWARE)
        assert problem.message.startswith("GPUs 0-2: the compute mode PROHIBITED")

    def test_no_gpu_is_said(self, make, look):
        """An empty node gives an empty Offer and a reason."""
        assert look.only(plan(Inventory(), make.config()), ProblemKind.HARDWARE).message == "the driver shows no GPU"


class TestWsl:
    """Windows hands out all GPUs together: one device `all` on /dev/dxg."""

    def test_all_gpus_are_one_device(self, make, look):
        """Three GPUs are exactly one device, with no minor or NUMA node needed (NVIDIA/k8s-device-plugin#332)."""
        node = replace(make.gpus(3, minor=None, device_nodes=()), platform=Platform.WSL)
        offer = plan(node, make.config())
        (device,) = offer.resource(GPU).devices
        assert (
            device.id,
            device.hardware_id,
            device.index,
            device.device_nodes,
            device.numa_node,
        ) == ("all", "all", "all", ("/dev/dxg",), None)
        assert make.uuid(0) == device.gpu_uuid
        assert offer.resource(GPU).policy is PreferencePolicy.DISTRIBUTED  # there are no links to choose by
        assert not offer.problems

    @pytest.mark.parametrize("devices", ["all", 1, [0], ["2"], ["GPU-00000000-0000-0000-0000-000000000001"]])
    def test_it_can_be_shared(self, make, look, devices):
        """Replicas are `all::n`, whichever of its GPUs the entry names."""
        node = replace(make.gpus(3), platform=Platform.WSL)
        assert look.ids(plan(node, make.slicing(entry(3, devices))), GPU) == ["all::0", "all::1", "all::2"]

    def test_a_config_that_tells_gpus_apart_is_warned_of(self, make, look):
        """Neither a selection nor two names can be had; the first GPU's name is used, once."""
        node = replace(make.node(make.gpu(0), make.gpu(1, name="T4"), make.gpu(2)), platform=Platform.WSL)
        config = make.config({"devices": {"exclude": [2]}, "resources": {"gpus": [{"pattern": "T4", "name": "t4"}]}})
        offer = plan(node, config)
        assert look.counts(offer) == {GPU: 1}
        assert len(look.problems(offer, ProblemKind.PLATFORM)) == 2

    def test_no_gpu_no_device(self, make, look):
        """A WSL system whose driver shows nothing offers nothing."""
        assert look.offered(Inventory(platform=Platform.WSL), make.config()) == {}

    @pytest.mark.parametrize(
        "entries",
        [
            [entry(4, [0, 1])],
            [entry(4, [0]), entry(4, [1])],
            [entry(4, [0], rename="gpu.shared"), entry(4, [1], rename="nvidia.com/gpu.shared"), entry(4, [2], rename="gpu.shared")],
            [entry(4, [0], allocationPolicy="packed"), entry(4, [1])],
        ],
    )
    def test_entries_that_ask_for_the_same_of_all_gpus_agree(self, make, look, entries):
        """Fault: a list of two GPUs named one device twice, and two lists contradicted each other."""
        offer = plan(replace(make.gpus(3), platform=Platform.WSL), make.slicing(*entries))
        assert list(look.counts(offer).values()) == [4]
        assert {problem.severity for problem in offer.problems} == {Severity.INFO}

    @pytest.mark.parametrize("more", [{"replicas": 2}, {"rename": "other"}, {"allocationPolicy": "packed"}])
    def test_entries_that_ask_for_different_things_cannot_both_be_met(self, make, look, more):
        """The message says why GPUs 0 and 1 are one device."""
        config = make.slicing(entry(4, [0]), {**entry(4, [1]), **more})
        offer = plan(replace(make.gpus(2), platform=Platform.WSL), config)
        assert look.counts(offer) == {GPU: 4}
        problem = look.only(offer, ProblemKind.CONTRADICTION)
        assert problem.origin.path == f"{ENTRIES}[1].devices[0]"
        assert problem.message == (
            f"under WSL all GPUs are one device, which is claimed by {ENTRIES}[0] (config.yaml:1:1) already, and that keeps it; "
            "let one entry claim it, or all ask for the same replicas, name and policy"
        )


class TestPlatform:
    """Tegra, and a strategy that disagrees with the node."""

    @pytest.mark.parametrize("strategy", ["auto", "tegra"])
    def test_tegra_is_refused_saying_what_was_found(self, make, look, strategy):
        """Owners could not tell whether they were supported (NVIDIA/k8s-device-plugin#377): a clean refusal."""
        node = replace(make.node(make.gpu(0, name="Orin (nvgpu)")), platform=Platform.TEGRA)
        offer = plan(node, make.config({"flags": {"deviceDiscoveryStrategy": strategy}}))
        assert look.counts(offer) == {}
        (problem,) = offer.errors(ProblemKind.PLATFORM)
        assert problem.origin.path == ("flags.deviceDiscoveryStrategy" if strategy == "tegra" else "")
        assert "GPU 0: Orin (nvgpu)" in problem.message
        assert "not supported" in problem.message

    @pytest.mark.parametrize("platform", [Platform.NVML, Platform.WSL, Platform.UNKNOWN])
    def test_a_forced_tegra_strategy_elsewhere_is_a_loud_warning(self, make, look, platform):
        """Four GPUs showed as one because the strategy was set by hand (NVIDIA/k8s-device-plugin#995): what is there is offered."""
        node = replace(make.gpus(4), platform=platform)
        forced = plan(node, make.config({"flags": {"deviceDiscoveryStrategy": "tegra"}}))
        assert look.counts(plan(node, make.config())) == look.counts(forced)
        problem = look.only(forced, ProblemKind.PLATFORM)
        assert (problem.severity, problem.origin.path) == (Severity.WARNING, "flags.deviceDiscoveryStrategy")

    def test_a_forced_nvml_strategy_on_tegra_offers_what_nvml_shows(self, make, look):
        """Stated by hand it is tried, with a warning; without any GPU it is refused as ever."""
        config = make.config({"flags": {"deviceDiscoveryStrategy": "nvml"}})
        offer = plan(replace(make.gpus(1), platform=Platform.TEGRA), config)
        assert look.counts(offer) == {GPU: 1}
        assert Severity.WARNING is look.only(offer, ProblemKind.PLATFORM).severity
        assert plan(Inventory(platform=Platform.TEGRA), config).errors(ProblemKind.PLATFORM)


def test_resources_come_by_name_and_devices_by_index(make, look):
    """GPU 10 comes after GPU 9, MIG device 1:10 after 1:9: order is of numbers, not of texts."""
    node = make.node(make.gpu(10), make.gpu(9), make.gpu(1, *["1g.5gb"] * 11))
    offer = plan(node, make.config(mig="mixed"))
    assert [resource.name for resource in offer.resources] == ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"]
    assert look.indexes(offer, GPU) == ["9", "10"]
    assert [f"1:{index}" for index in range(11)] == look.indexes(offer, "nvidia.com/mig-1g.5gb")
