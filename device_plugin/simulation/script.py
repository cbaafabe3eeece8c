"""The script of a profile: faults that happen at a time after the node's start. Each step is one call on the SimulatedNode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from device_plugin.simulation.node import SimulatedNode


def _number_or_text(value: object) -> object:
    """Said once, where pydantic would tell of each alternative that it tried."""
    if isinstance(value, bool) or not isinstance(value, int | str | None):
        raise ValueError("expected a number or a name")
    return value


NumberOrName = Annotated[int | str, BeforeValidator(_number_or_text)]
GpuName = NumberOrName  # a GPU's index or UUID
Profiles = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]


class _Step(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True)

    at_seconds: float = Field(ge=0)


class Xid(_Step):
    do: Literal["xid"]
    gpu: GpuName
    xid: int = Field(ge=0)
    gpu_instance: int | None = None
    compute_instance: int | None = None

    def play(self, node: SimulatedNode) -> None:
        node.xid(self.gpu, self.xid, self.gpu_instance, self.compute_instance)


class Lose(_Step):
    do: Literal["lose"]
    gpu: GpuName

    def play(self, node: SimulatedNode) -> None:
        node.lose(self.gpu)


class Restore(_Step):
    do: Literal["restore"]
    gpu: GpuName

    def play(self, node: SimulatedNode) -> None:
        node.restore(self.gpu)


class Repartition(_Step):
    do: Literal["repartition"]
    gpu: GpuName
    mig: Profiles

    def play(self, node: SimulatedNode) -> None:
        node.repartition(self.gpu, self.mig)


class Change(_Step):
    do: Literal["set"]
    gpu: GpuName
    values: dict[str, JsonValue]

    def play(self, node: SimulatedNode) -> None:
        node.set(self.gpu, **{_snake(key): value for key, value in self.values.items()})


class Answer(_Step):
    do: Literal["answer"]
    call: str
    code: NumberOrName
    gpu: GpuName | None = None
    times: int | None = Field(default=None, ge=1)

    def play(self, node: SimulatedNode) -> None:
        node.answer(self.call, self.code, gpu=self.gpu, times=self.times)


class Hang(_Step):
    do: Literal["hang"]
    call: str
    gpu: GpuName | None = None

    def play(self, node: SimulatedNode) -> None:
        node.hang(self.call, gpu=self.gpu)


class Release(_Step):
    do: Literal["release"]

    def play(self, node: SimulatedNode) -> None:
        node.release()


class Slow(_Step):
    do: Literal["slow"]
    seconds: float = Field(ge=0)

    def play(self, node: SimulatedNode) -> None:
        node.slow(self.seconds)


class UnloadDriver(_Step):
    do: Literal["unload-driver"]

    def play(self, node: SimulatedNode) -> None:
        node.unload_driver()


class LoadDriver(_Step):
    do: Literal["load-driver"]
    version: str | None = None

    def play(self, node: SimulatedNode) -> None:
        node.load_driver(self.version)


Step = Annotated[
    Xid | Lose | Restore | Repartition | Change | Answer | Hang | Release | Slow | UnloadDriver | LoadDriver,
    Field(discriminator="do"),
]


class Script(BaseModel):
    """The faults of a profile, as its file states them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    faults: Annotated[tuple[Step, ...], BeforeValidator(tuple)]


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
