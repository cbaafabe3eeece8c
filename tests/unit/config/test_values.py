"""The scalar values: what the peer's tests say of devices, and our own rules for names and patterns."""

from __future__ import annotations

import pytest

from device_plugin.config import values

UUID = "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"


@pytest.mark.parametrize(
    ("value", "ref"),
    [
        (0, "0"),
        ("0", "0"),
        ("007", "7"),
        ("0:0", "0:0"),
        (f"GPU-{UUID}", f"GPU-{UUID}"),
        (f"GPU-{UUID.upper()}", f"GPU-{UUID}"),
        (f"MIG-{UUID}", f"MIG-{UUID}"),
        (f"MIG-GPU-{UUID}/10/0", f"MIG-GPU-{UUID}/10/0"),
    ],
)
def test_a_device_has_one_spelling(value, ref):
    assert values.parse_device_ref(value) == ref


@pytest.mark.parametrize(
    "value",
    ["", "-1", -1, True, 1.0, None, "invalid-UUID", "GPU-UUID", "MIG-UUID", f"MIG-GPU-{UUID}", "0:", "0:1:2", "٣", f"gpu-{UUID}"],
)
def test_what_names_no_device_is_refused(value):
    with pytest.raises(ValueError, match="names no device"):
        values.parse_device_ref(value)


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("all", "all"),
        (2, 2),
        ([0], ("0",)),
        (["0"], ("0",)),
        (["0:0"], ("0:0",)),
        ([0, "0:0", f"GPU-{UUID}"], ("0", "0:0", f"GPU-{UUID}")),
    ],
)
def test_devices_are_all_or_a_count_or_a_list(value, devices):
    assert values.parse_devices(value) == devices


@pytest.mark.parametrize(
    "value", ["", "not-all", -2, 0, 2.0, True, None, [], {}, [-1], ["-1"], ["invalid-UUID"], [f"MIG-GPU-{UUID}"]]
)
def test_other_devices_are_refused(value):
    with pytest.raises(ValueError, match=r"expected|names no device"):
        values.parse_devices(value)


def test_each_wrong_device_is_told_apart():
    with pytest.raises(values.InvalidItems) as caught:
        values.parse_devices(["x", 0, "0", "y"])
    assert sorted(caught.value.items) == [0, 2, 3]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gpu", "nvidia.com/gpu"),
        ("nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-1g.10gb.me"),
        ("example.com/GPU_1", "example.com/GPU_1"),
        ("a" * 63, f"nvidia.com/{'a' * 63}"),
        (f"{'a' * 244}/g", f"{'a' * 244}/g"),
    ],
)
def test_resource_names_by_kubelets_rules(text, name):
    """Other plugins forbade `-` and `.`, which Kubernetes allows (koordinator-sh/koordinator#1025,
    k8snetworkplumbingwg/sriov-network-device-plugin#476)."""
    assert values.parse_resource_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "", "/gpu", "gpu/", "a/b/c", "$invalid$", "bad name", "-gpu", "gpu-", "gpü", "Nvidia.com/gpu", "nvidia..com/gpu", "gpu\n",
        "a" * 64, f"{'a' * 245}/g", "kubernetes.io/gpu", "x.kubernetes.io/gpu", "requests.nvidia.com/gpu", 5, None,
    ],
)  # fmt: skip
def test_names_that_kubelet_would_refuse_are_refused_at_load(text):
    """They surfaced at registration, as `ResourceName is invalid` (k8snetworkplumbingwg/sriov-network-operator#294)."""
    with pytest.raises(ValueError, match="resource name"):
        values.parse_resource_name(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("1g.24gb", "1g.24gb"), ("1g.24gb-me", "1g.24gb-me"), ("1g.24gb+me.all", "1g.24gb+me.all"), ("2g.48gb+gfx", "2g.48gb+gfx"),
        ("*", "1g.24gb-me"), ("*", ""), ("1g.*", "1g.24gb"), ("*gb", "1g.24gb"), ("a*b*c", "aXbYc"), ("**", "x"), ("a**b", "ab"),
        ("*aa*aa*", "aaaa"),
    ],
)  # fmt: skip
def test_patterns_match(pattern, text):
    assert values.matches_pattern(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("1g.24gb", "2g.48gb"), ("1g.24gb", "1g.24gb-me"), ("1g.24gb", "1g.24gb+me.all"), ("1g.24gb", "x1g.24gb"),
        ("1g.24gb+gfx", "1g.24gb"),
        ("1g.24gb+gfx", "1g.24gb-me"), ("2g.48gb", "2g.48gb+gfx"), ("1g.*", "2g.48gb"), ("1g.*", "1gx24gb"), ("*gb", "1g.24gb-me"),
        ("a*a", "a"), ("*aa*aa*", "aaa"), ("*b*b", "ab"), ("", "x"),
    ],
)  # fmt: skip
def test_patterns_match_nothing_else(pattern, text):
    """A pattern for one MIG profile swallowed its variants (NVIDIA/k8s-device-plugin#1807)."""
    assert not values.matches_pattern(pattern, text)


def test_a_pattern_of_many_stars_is_matched_in_no_time():
    assert not values.matches_pattern("*a" * 200 + "b", "a" * 10_000)


@pytest.mark.parametrize(
    ("text", "is_address"),
    [("0000:3b:00.0", True), ("3B:00.0", True), ("00000000:3b:00.0", True), ("3b:00.8", False), ("0", False)],
)
def test_pci_addresses(text, is_address):
    assert values.is_pci_address(text) is is_address


@pytest.mark.parametrize("value", ["relative", "/a\nb", "/a\x00", 5, ""])
def test_paths_are_absolute_and_printable(value):
    with pytest.raises(ValueError, match="expected an absolute path"):
        values.parse_path(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        ("", "an empty text"),
        ("x", "'x'"),
        ({}, "a mapping"),
        ([1], "a list"),
        ([], "an empty list"),
        (1.5, "1.5"),
    ],
)
def test_values_are_shown_as_they_would_stand_in_the_file(value, text):
    assert values.shown(value) == text


def test_a_long_text_is_shown_in_short():
    assert len(values.shown("x" * 10_000)) < 70
