"""How hardware is named in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from device_plugin.hardware.model import Gpu


def join_words(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def list_gpus(indexes: Iterable[int]) -> str:
    """`GPU 3`, or `GPUs 0-3, 5 and 7`. Empty for none."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    plural = len(runs) > 1 or any(first != last for first, last in runs)
    return f"{'GPUs' if plural else 'GPU'} {join_words(words)}" if words else ""


def list_products(gpus: Iterable[Gpu]) -> str:
    """`GPUs 0-3: NVIDIA A100-SXM4-40GB; GPU 4: Tesla T4`, or `no GPU`."""
    products: dict[str, list[int]] = {}
    for gpu in gpus:
        products.setdefault(gpu.name, []).append(gpu.index)
    return "; ".join(f"{list_gpus(indexes)}: {product}" for product, indexes in products.items()) or "no GPU"


def list_counts(counts: Mapping[str, int]) -> str:
    """`nvidia.com/gpu: 8, nvidia.com/gpu.shared: 10`, or `nothing`."""
    return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) or "nothing"
