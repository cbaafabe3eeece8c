"""Time-slicing entries: who claims which device, and under which name."""

from __future__ import annotations

import pytest

from device_plugin.hardware.model import ComputeMode
from device_plugin.problems import ProblemKind, Severity
from device_plugin.sharing.offer import PreferencePolicy
from device_plugin.sharing.plan import plan

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
ENTRIES = "sharing.timeSlicing.resources"


def entry(replicas: int, devices: object = "all", name: str = "gpu", **more: object) -> dict[str, object]:
    return {"name": name, "replicas": replicas, "devices": devices, **more}


def test_replicas_of_all(make, look):
    """The peer's plain case: every GPU n times, IDs numbered from 0, in index order; the runtime's index stays the GPU's."""
    offer = plan(make.gpus(2), make.slicing(entry(2)))
    (resource,) = offer.resources
    assert [f"{make.uuid(gpu)}::{number}" for gpu in (0, 1) for number in (0, 1)] == look.ids(offer, GPU)
    assert look.indexes(offer, GPU) == ["0", "0", "1", "1"]
    assert [make.uuid(0)] * 2 + [make.uuid(1)] * 2 == [device.hardware_id for device in resource.devices]
    assert [device.replica for device in resource.devices] == [0, 1, 0, 1]
    assert all(device.device_nodes and device.is_shared for device in resource.devices)


def test_one_node_three_ways(make, look):
    """GPU 0 ten times, GPU 1 twice, the rest whole: `devices` was ignored, all were shared (NVIDIA/k8s-device-plugin#628)."""
    config = make.slicing(entry(10, [0], rename="gpu.shared"), entry(2, ["1"], rename="gpu.shared"))
    offer = plan(make.gpus(8), config)
    assert look.counts(offer) == {GPU: 6, SHARED: 12}
    assert look.indexes(offer, GPU) == ["2", "3", "4", "5", "6", "7"]
    assert look.indexes(offer, SHARED) == ["0"] * 10 + ["1"] * 2
    assert [resource.policy for resource in offer.resources] == [PreferencePolicy.ALIGNED, PreferencePolicy.DISTRIBUTED]
    assert not offer.errors()


@pytest.mark.parametrize(
    "reference",
    [0, "0", "00", "GPU-00000000-0000-0000-0000-000000000000"],
)
def test_a_gpu_is_named_by_index_or_uuid(make, look, reference):
    """Both name GPU 0 (NVIDIA/k8s-device-plugin#404)."""
    assert look.offered(make.gpus(4), make.slicing(entry(4, [reference], rename=SHARED))) == {GPU: 3, SHARED: 4}


@pytest.mark.parametrize(
    "reference",
    ["0:1", "MIG-00000000-0000-0000-0000-000000000001", "MIG-GPU-00000000-0000-0000-0000-000000000000/8/0"],
)
@pytest.mark.parametrize(("strategy", "name"), [("mixed", "mig-1g.5gb"), ("single", "gpu")])
def test_a_mig_device_is_named_in_three_ways(make, look, strategy, name, reference):
    """MIG index, UUID and the old form with instance ids mean the same device, under either strategy."""
    config = make.slicing(entry(3, [reference], name=name, rename="part"), mig=strategy)
    offer = plan(make.node(make.gpu(0, "1g.5gb", "1g.5gb")), config)
    assert {f"nvidia.com/{name}": 1, "nvidia.com/part": 3} == look.counts(offer)
    assert look.indexes(offer, "nvidia.com/part") == ["0:1"] * 3


def test_a_driver_that_writes_uuids_in_capitals(make, look):
    """Hexadecimal digits of either case are the same device; its ID stays as the driver gives it."""
    uuid = "GPU-ABCDEF00-0000-0000-0000-000000000000"
    offer = plan(make.node(make.gpu(0, uuid=uuid), make.gpu(1)), make.slicing(entry(2, [uuid.lower().replace("gpu", "GPU")])))
    assert look.ids(offer, GPU) == [f"{uuid}::0", f"{uuid}::1", make.uuid(1)]


class TestClaims:
    """Entries claim in file order."""

    def test_a_list_a_count_and_the_rest(self, make, look):
        """A count takes the next unclaimed in index order, `all` what is left."""
        config = make.slicing(entry(2, [1], rename="a"), entry(3, 2, rename="b"), entry(4, "all", rename="c"))
        offer = plan(make.gpus(5), config)
        assert look.indexes(offer, "nvidia.com/a") == ["1", "1"]
        assert look.indexes(offer, "nvidia.com/b") == ["0"] * 3 + ["2"] * 3
        assert look.indexes(offer, "nvidia.com/c") == ["3"] * 4 + ["4"] * 4
        assert not look.problems(offer, ProblemKind.UNMET)

    @pytest.mark.parametrize("first", [[0], 1, "all"])
    def test_a_device_claimed_already_is_a_contradiction(self, make, look, first):
        """Whatever claimed it first keeps it, and the error stands where the second names it."""
        offer = plan(make.gpus(2), make.slicing(entry(2, first, rename="a"), entry(3, [0], rename="b")))
        assert "0" in look.indexes(offer, "nvidia.com/a")
        assert "0" not in look.indexes(offer, "nvidia.com/b")
        (problem,) = offer.errors()
        assert (ProblemKind.CONTRADICTION, f"{ENTRIES}[1].devices[0]") == (problem.kind, problem.origin.path)
        assert f"{ENTRIES}[0] (config.yaml:1:1) already" in problem.message

    def test_two_spellings_in_one_list_are_one_device(self, make, look):
        """A device named by index and by UUID in one list is taken once, and said."""
        offer = plan(make.gpus(2), make.slicing(entry(2, [0, make.uuid(0)])))
        assert look.counts(offer) == {GPU: 3}
        assert "a second time" in offer.problems[0].message

    @pytest.mark.parametrize(("count", "left"), [(3, 3), (9, 8)])
    def test_a_count_larger_than_what_is_left_takes_it(self, make, look, count, left):
        """The rest is served; only the excess is a warning."""
        offer = plan(make.gpus(8), make.slicing(entry(2, count)))
        assert {GPU: 8 + left} == look.counts(offer)
        assert (count > 8) == bool(look.problems(offer, ProblemKind.UNMET))

    def test_a_second_all_finds_nothing(self, make, look):
        """Two entries for everything are no contradiction, but the second has no effect, and that is said."""
        offer = plan(make.gpus(2), make.slicing(entry(2), entry(3)))
        assert look.counts(offer) == {GPU: 4}
        assert f"{ENTRIES}[1].devices" == look.only(offer, ProblemKind.UNMET).origin.path

    @pytest.mark.parametrize(
        ("reference", "words"),
        [
            (9, "nvidia.com/gpu has no device '9' on this node; it has 0 and 1"),
            ("0:1", "nvidia.com/gpu has no device '0:1'"),
            ("2:0", "device '2:0' is not of nvidia.com/gpu but of another resource"),
            (3, "device '3' is not offered (hidden by devices.include or devices.exclude)"),
            ("GPU-99999999-0000-0000-0000-000000000000", "nvidia.com/gpu has no device 'GPU-99999999"),
        ],
    )
    def test_a_device_that_cannot_be_met_is_a_warning(self, make, look, reference, words):
        """Index 9 of 2: the others are shared, and the message says what there is."""
        config = make.config(
            {
                "devices": {"exclude": [3]},
                "sharing": {"timeSlicing": {"resources": [entry(2, [0, reference])]}},
            },
            mig="mixed",
        )
        offer = plan(make.node(make.gpu(0), make.gpu(1), make.gpu(2, "1g.5gb"), make.gpu(3)), config)
        assert look.counts(offer)[GPU] == 3
        problem = look.only(offer, ProblemKind.UNMET)
        assert (Severity.WARNING, f"{ENTRIES}[0].devices[1]") == (problem.severity, problem.origin.path)
        assert words in problem.message

    @pytest.mark.parametrize("reference", ["0", "GPU-00000000-0000-0000-0000-000000000000"])
    def test_a_split_gpu_is_told_to_be_named_by_its_parts(self, make, look, reference):
        """The index of a split GPU, or its UUID, names none of its MIG devices."""
        config = make.slicing(entry(2, [reference], name="mig-1g.5gb"), mig="mixed")
        offer = plan(make.node(make.gpu(0, "1g.5gb", "1g.5gb")), config)
        message = look.only(offer, ProblemKind.UNMET).message
        assert f"GPU {reference!r} is split into MIG devices; name those: it has 0:0 and 0:1" in message


class TestNames:
    """Under which name an entry's devices are offered."""

    def test_rename_by_default_moves_what_is_shared(self, make, look):
        """`.shared` is put behind the name, and nothing stays under the plain one."""
        assert look.offered(make.gpus(2), make.slicing(entry(10), renameByDefault=True)) == {SHARED: 20}

    def test_one_replica_is_no_sharing(self, make, look):
        """`replicas: 1` keeps the plain ID and the plain name, even under renameByDefault; a rename of its own is followed."""
        config = make.slicing(entry(1, [0]), entry(1, [1], rename="own"), entry(2, [2]), renameByDefault=True)
        offer = plan(make.gpus(3), config)
        assert [make.uuid(0)] == look.ids(offer, GPU)
        assert [make.uuid(1)] == look.ids(offer, "nvidia.com/own")
        assert [f"{make.uuid(2)}::0", f"{make.uuid(2)}::1"] == look.ids(offer, SHARED)

    def test_a_rename_wins_over_the_default(self, make, look):
        """An entry's own rename is not overwritten, as the peer did (NVIDIA/k8s-device-plugin#353)."""
        assert look.offered(make.gpus(1), make.slicing(entry(2, rename="example.com/slice"), renameByDefault=True)) == {
            "example.com/slice": 2
        }

    def test_a_default_name_too_long_for_kubelet_withholds(self, make, look):
        """`<name>.shared` over 63 characters is never registered; the unshared rest keeps its name."""
        long = "g" * 60
        config = make.config(
            {
                "resources": {"gpus": [{"pattern": "*", "name": long}]},
                "sharing": {"timeSlicing": {"renameByDefault": True, "resources": [entry(2, [0], name=long)]}},
            }
        )
        offer = plan(make.gpus(2), config)
        assert {f"nvidia.com/{long}": 1} == look.counts(offer)
        (problem,) = offer.errors()
        assert (ProblemKind.CONFIG, f"{ENTRIES}[0].name") == (problem.kind, problem.origin.path)
        assert "67 characters, at most 63" in problem.message
        assert [item.index for item in offer.withheld] == ["0"]

    def test_several_sources_merge_in_index_order(self, make, look):
        """Entries, MIG devices and whole GPUs of one name are one resource; whole and replicated together choose greedily."""
        config = make.slicing(
            entry(2, [2], rename="pool"), entry(2, name="mig-1g.5gb", rename="pool"), entry(1, [0], rename="pool"), mig="mixed"
        )
        offer = plan(make.node(make.gpu(0), make.gpu(1, "1g.5gb"), make.gpu(2)), config)
        assert look.indexes(offer, "nvidia.com/pool") == ["0", "1:0", "1:0", "2", "2"]
        assert [resource.policy for resource in offer.resources] == [PreferencePolicy.DISTRIBUTED]

    @pytest.mark.parametrize(
        ("name", "severity", "words"),
        [
            ("nvidia.com/mig-1g.10gb", Severity.INFO, "this node has nvidia.com/gpu and nvidia.com/mig-1g.5gb"),
            ("example.com/other", Severity.INFO, "no device is called example.com/other"),
            ("nvidia.com/gpus", Severity.WARNING, "did you mean nvidia.com/gpu?"),
            ("nvidia.com/mig-1g5gb", Severity.WARNING, "did you mean nvidia.com/mig-1g.5gb?"),
            ("nvidia.com/pool", Severity.WARNING, "before sharing; name the resource that it is made from"),
        ],
    )
    def test_a_name_that_is_not_here(self, make, look, name, severity, words):
        """One ConfigMap serves many nodes, so a name of other nodes is no trouble; a slip of the pen gets a hint."""
        config = make.slicing(entry(2, rename="pool"), entry(2, name=name), mig="mixed")
        offer = plan(make.node(make.gpu(0), make.gpu(1, "1g.5gb")), config)
        problem = look.only(offer, ProblemKind.UNMET)
        assert (severity, f"{ENTRIES}[1].name") == (problem.severity, problem.origin.path)
        assert words in problem.message

    @pytest.mark.parametrize(
        ("name", "gpus", "has"),
        [("mig-1g.5gb", 1, "this node has nvidia.com/gpu and the MIG strategy is none"), ("gpu", 0, "this node has no device")],
    )
    def test_a_mig_name_without_mig_devices_is_told_the_strategy(self, make, look, name, gpus, has):
        """The most likely reason why there are none."""
        message = look.only(plan(make.gpus(gpus), make.slicing(entry(2, name=name))), ProblemKind.UNMET).message
        assert message == f"no device is called nvidia.com/{name}: {has}"

    def test_an_entry_for_other_nodes_stops_none_after_it(self, make, look):
        """The entries that follow one whose name is not here still claim."""
        assert look.offered(make.gpus(2), make.slicing(entry(2, name="example.com/other"), entry(3))) == {GPU: 6}

    def test_a_default_name_that_resources_replaced_is_a_warning(self, make, look):
        """A file whose `resources` the peer ignored shares nvidia.com/gpu, which nothing is called here."""
        config = make.config(
            {
                "resources": {"gpus": [{"pattern": "*A100*", "name": "a100"}]},
                "sharing": {"timeSlicing": {"resources": [entry(2)]}},
            }
        )
        offer = plan(make.gpus(2), config)
        assert look.counts(offer) == {"nvidia.com/a100": 2}
        assert "this node has nvidia.com/a100, by the names under resources" in look.only(offer, ProblemKind.UNMET).message


class TestSaid:
    """What sharing makes plan say."""

    def test_time_slicing_isolates_no_memory(self, make, look):
        """Users expect a cap and a pod takes it all (NVIDIA/k8s-device-plugin#569): said once, as information."""
        offer = plan(make.gpus(4), make.slicing(entry(2, [0]), entry(4, [1])))
        assert sum("isolates no memory" in problem.message for problem in offer.problems if problem.severity is Severity.INFO) == 1

    def test_nothing_shared_nothing_said(self, make):
        """Entries of one replica, or of names that are not here, share nothing."""
        offer = plan(make.gpus(2), make.slicing(entry(1), entry(2, name="mig-1g.5gb"), mig="mixed"))
        assert not [problem for problem in offer.problems if "isolates" in problem.message]

    @pytest.mark.parametrize("mode", [ComputeMode.EXCLUSIVE_PROCESS, ComputeMode.EXCLUSIVE_THREAD])
    def test_replicas_on_an_exclusive_gpu(self, make, look, mode):
        """In an exclusive compute mode the second replica's program cannot start: said aloud, and only of GPUs that are shared."""
        node = make.node(*(make.gpu(index, compute_mode=mode) for index in range(3)))
        offer = plan(node, make.slicing(entry(2, [0, 1])))
        problem = look.only(offer, ProblemKind.HARDWARE)
        assert Severity.WARNING is problem.severity
        assert problem.message.startswith(f"GPUs 0-1: shared, but the compute mode {mode.name}")
        assert not look.problems(plan(node, make.config()), ProblemKind.HARDWARE)

    def test_a_taken_over_file_that_means_more_here(self, make, look):
        """The peer would have shared all four GPUs under one name: both outcomes are shown."""
        offer = plan(make.gpus(4), make.slicing(entry(10, [0], rename=SHARED)))
        assert look.only(offer, ProblemKind.DIFFERENCE).message == (
            "here these take effect: sharing.timeSlicing.resources[0].devices, sharing.timeSlicing.resources[0].rename; "
            "this node offers nvidia.com/gpu: 3, nvidia.com/gpu.shared: 10. "
            "NVIDIA's plugin ignores them and would offer nvidia.com/gpu: 40"
        )

    def test_what_the_peer_does_not_know_changes_nothing_there(self, make, look):
        """It has no selection of GPUs, and of two entries for one resource the one with more replicas counts."""
        shared = {"timeSlicing": {"resources": [entry(2, [0], rename=SHARED), entry(3, [1])]}}
        offer = plan(make.gpus(4), make.config({"sharing": shared, "devices": {"exclude": [3]}}))
        assert look.only(offer, ProblemKind.DIFFERENCE).message.endswith(
            "this node offers nvidia.com/gpu: 4, nvidia.com/gpu.shared: 2. "
            "NVIDIA's plugin ignores them and would offer nvidia.com/gpu: 12"
        )

    def test_a_file_that_the_peer_refuses(self, make, look):
        """One replica is fewer than it takes, so it would offer nothing."""
        offer = plan(make.gpus(4), make.slicing(entry(2, [0]), entry(1, [1], rename="solo")))
        assert look.only(offer, ProblemKind.DIFFERENCE).message.endswith("NVIDIA's plugin refuses a file with replicas: 1")

    def test_names_of_ones_own_that_the_peer_ignores(self, make, look):
        """`resources` alone makes a difference too."""
        offer = plan(make.gpus(4), make.config({"resources": {"gpus": [{"pattern": "*", "name": "a100"}]}}))
        problem = look.only(offer, ProblemKind.DIFFERENCE)
        assert problem.origin.path == "resources.gpus"
        assert "offers nvidia.com/a100: 4. NVIDIA's plugin ignores them and would offer nvidia.com/gpu: 4" in problem.message

    @pytest.mark.parametrize(
        "config",
        [
            {"resources": {"gpus": [{"pattern": "*H100*", "name": "h100"}]}},
            {"sharing": {"timeSlicing": {"renameByDefault": True, "resources": [entry(2, rename=SHARED)]}}},
            {"sharing": {"timeSlicing": {"resources": [entry(2, 4)]}}},
            {},
        ],
    )
    def test_no_difference_no_word(self, make, look, config):
        """A key that changes nothing on this node is not worth a line."""
        assert not look.problems(plan(make.gpus(4), make.config(config)), ProblemKind.DIFFERENCE)
