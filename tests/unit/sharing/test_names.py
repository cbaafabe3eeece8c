"""Resource names: patterns, defaults, names of one's own."""

from __future__ import annotations

import pytest

from device_plugin.config.values import matches_pattern, parse_resource_name
from device_plugin.problems import ProblemKind, Severity
from device_plugin.sharing.names import default_mig_name
from device_plugin.sharing.plan import plan


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("1g.24gb", "1g.24gb", True),
        ("1g.24gb", "2g.48gb", False),
        ("1g.24gb", "1g.24gb-me", False),
        ("1g.24gb", "1g.24gb+me.all", False),
        ("1g.24gb", "x1g.24gb", False),
        ("1g.24gb", "1g.24gb+gfx", False),
        ("1g.24gb", "1gx24gb", False),
        ("1g.24gb-me", "1g.24gb-me", True),
        ("1g.24gb+me.all", "1g.24gb+me.all", True),
        ("1g.24gb+gfx", "1g.24gb+gfx", True),
        ("1g.24gb+gfx", "1g.24gb", False),
        ("1g.24gb+gfx", "1g.24gb-me", False),
        ("2g.48gb+gfx", "2g.48gb+gfx", True),
        ("2g.48gb", "2g.48gb+gfx", False),
        ("*", "1g.24gb-me", True),
        ("*", "", True),
        ("1g.*", "1g.24gb", True),
        ("1g.*", "2g.48gb", False),
        ("*gb", "1g.24gb", True),
        ("*gb", "1g.24gb-me", False),
        ("*A100*", "NVIDIA A100-SXM4-40GB", True),
        ("*a100*", "NVIDIA A100-SXM4-40GB", False),
        ("*A*0*G*", "NVIDIA A100-SXM4-40GB", True),
        ("*0*A*", "NVIDIA A100-SXM4-40GB", False),
        ("a*a", "a", False),
        ("ab*ba", "aba", False),
        ("a**b", "ab", True),
        ("", "", True),
        ("[0-9]?", "1", False),
        ("*", "two\nlines", True),
    ],
)
def test_a_pattern_matches_the_whole_text(pattern, text, expected):
    """Only `*` is special, and both ends are anchored, else `1g.24gb` swallows `1g.24gb+gfx` (NVIDIA/k8s-device-plugin#1807)."""
    assert expected == matches_pattern(pattern, text)


def test_a_pattern_of_many_stars_is_decided_at_once():
    """A hostile pattern costs no more than its length: there is no backtracking."""
    assert not matches_pattern("*a" * 5000 + "b", "a" * 20_000)


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("1g.10gb+me", "nvidia.com/mig-1g.10gb.me"),
        ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
        ("2g.48gb+gfx", "nvidia.com/mig-2g.48gb.gfx"),
        ("1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
        ("1c.3g.20gb", "nvidia.com/mig-1c.3g.20gb"),
    ],
)
def test_a_profile_is_its_resource_with_dots_for_plus_signs(profile, expected):
    """Each suffix keeps a name of its own, else the media-engine slice cannot be asked for (NVIDIA/k8s-device-plugin#1462)."""
    assert expected == default_mig_name(profile)


@pytest.mark.parametrize(
    "profiles",
    [
        ("1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb"),
        ("1g.23gb", "1g.47gb", "2g.47gb"),
        ("1g.24gb", "1g.47gb", "2g.47gb"),
        ("1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me", "2g.48gb+gfx", "4g.96gb+gfx"),
    ],
)
def test_names_come_from_the_driver_not_from_a_table(make, look, profiles):
    """Profiles that no release knew appear under their own names: one product had several sets of them
    (NVIDIA/gpu-operator#1303, GoogleCloudPlatform/container-engine-accelerators#563).
    """
    offered = look.offered(make.node(make.gpu(0, *profiles)), make.config(mig="mixed"))
    assert dict.fromkeys((f"nvidia.com/mig-{profile.replace('+', '.')}" for profile in profiles), 1) == offered


def test_two_a100_with_media_engine_slices_show_three_resources(make, look):
    """The layout that showed 12 of one resource shows 10, 2 and 2 (NVIDIA/k8s-device-plugin#1462)."""
    profiles = ["1g.10gb"] * 5 + ["1g.10gb+me", "1g.20gb"]
    offered = look.offered(make.node(make.gpu(0, *profiles), make.gpu(1, *profiles)), make.config(mig="mixed"))
    assert offered == {"nvidia.com/mig-1g.10gb": 10, "nvidia.com/mig-1g.10gb.me": 2, "nvidia.com/mig-1g.20gb": 2}


@pytest.mark.parametrize("profile", ["", "1g/5gb", "1g 5gb", "1g.5gb+", "x" * 60, "größe", "1g.5gb\n", None])
def test_a_profile_that_is_no_name_withholds_its_device_only(make, look, profile):
    """Whatever a driver calls a profile, no invalid name reaches kubelet, and the sibling is still offered."""
    gpu = make.gpu(0, mig_enabled=True, mig_devices=(make.mig(0, 0, profile), make.mig(0, 1, "1g.5gb")))
    offer = plan(make.node(gpu), make.config(mig="mixed"))
    assert look.counts(offer) == {"nvidia.com/mig-1g.5gb": 1}
    problem = look.only(offer, ProblemKind.MIG)
    assert problem.severity is Severity.ERROR
    assert "MIG device 0:0" in problem.message
    assert [item.index for item in offer.withheld] == ["0:0"]


def test_a_strange_profile_can_be_given_a_name(make, look):
    """A pattern under resources.mig comes before the default name, so it also names what has none."""
    config = make.config({"resources": {"mig": [{"pattern": "1g/*", "name": "example.com/small"}]}}, mig="mixed")
    assert look.offered(make.node(make.gpu(0, "1g/5gb")), config) == {"example.com/small": 1}


def test_names_of_ones_own_work(make, look):
    """`resources` was read and thrown away by the peer (NVIDIA/k8s-device-plugin#353); here it names GPUs and MIG devices."""
    config = make.config(
        {
            "resources": {
                "gpus": [{"pattern": "*T4*", "name": "t4"}, {"pattern": "*A100*", "name": "example.com/a100"}],
                "mig": [{"pattern": "1g.*", "name": "tiny"}],
            }
        },
        mig="mixed",
    )
    node = make.node(make.gpu(0), make.gpu(1, name="Tesla T4"), make.gpu(2, name="NVIDIA L4"), make.gpu(3, "1g.5gb", "2g.10gb"))
    assert look.offered(node, config) == {
        "example.com/a100": 1,
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-2g.10gb": 1,
        "nvidia.com/t4": 1,
        "nvidia.com/tiny": 1,
    }


def test_the_first_pattern_wins_and_the_idle_one_is_named(make, look):
    """List order decides; a pattern behind one that takes everything is said to name nothing."""
    patterns = [{"pattern": "*", "name": "any"}, {"pattern": "*A100*", "name": "a100"}]
    offer = plan(make.gpus(2), make.config({"resources": {"gpus": patterns}}))
    assert look.counts(offer) == {"nvidia.com/any": 2}
    problem = look.only(offer, ProblemKind.UNMET)
    assert problem.origin.path == "resources.gpus[1].pattern"
    assert "an earlier pattern takes NVIDIA A100-SXM4-40GB" in problem.message


def test_a_model_that_is_not_there_is_a_warning(make, look):
    """A pattern for a model this node lacks does not stop the rest, and the warning says what the node has."""
    offer = plan(make.gpus(2), make.config({"resources": {"gpus": [{"pattern": "*H100*", "name": "h100"}]}}))
    assert look.counts(offer) == {"nvidia.com/gpu": 2}
    problem = look.only(offer, ProblemKind.UNMET)
    assert Severity.WARNING is problem.severity
    assert problem.message == "the pattern '*H100*' names no GPU: this node has GPUs 0-1: NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize(
    ("strategy", "patterns", "path", "message"),
    [
        ("none", ["7g.*"], "resources.mig", "resources.mig names MIG devices, and the MIG strategy none offers no MIG devices"),
        ("mixed", ["1g.*", "7g.*"], "resources.mig[1].pattern", "the pattern '7g.*' names no MIG device: this node has 1g.5gb"),
        (
            "mixed",
            ["*", "1g.*"],
            "resources.mig[1].pattern",
            "the pattern '1g.*' names no MIG device: an earlier pattern takes 1g.5gb",
        ),
        ("mixed", ["*"], "", ""),
    ],
)
def test_a_pattern_that_names_no_mig_device_is_said(make, look, strategy, patterns, path, message):
    """One ConfigMap serves many nodes, so it is information and no warning."""
    named = [{"pattern": pattern, "name": f"part{number}"} for number, pattern in enumerate(patterns)]
    offer = plan(make.node(make.gpu(0, "1g.5gb"), make.gpu(1)), make.config({"resources": {"mig": named}}, mig=strategy))
    found = [(problem.severity, problem.origin.path, problem.message) for problem in look.problems(offer, ProblemKind.UNMET)]
    assert found == ([(Severity.INFO, path, message)] if message else [])


def test_several_kinds_of_hardware_may_share_a_name(make, look):
    """GPUs and MIG devices under one name are one resource, in index order."""
    config = make.config({"resources": {"mig": [{"pattern": "*", "name": "gpu"}]}}, mig="mixed")
    offer = plan(make.node(make.gpu(0), make.gpu(1, "3g.20gb", "3g.20gb"), make.gpu(2)), config)
    assert look.indexes(offer, "nvidia.com/gpu") == ["0", "1:0", "1:1", "2"]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("kubernetes.io/gpu", "kubernetes.io"),
        ("nvidia.com/" + "g" * 64, "at most 63"),
        ("nvidia_com/gpu", "DNS-1123"),
        ("nvidia.com/gpu/0", "more than one '/'"),
    ],
)
def test_a_bad_name_is_refused_with_the_rule(text, rule):
    """Kubelet answers only that a name is invalid (k8snetworkplumbingwg/sriov-network-operator#294); the rule is said at load."""
    with pytest.raises(ValueError, match=rule):
        parse_resource_name(text)
