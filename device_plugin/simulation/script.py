"""The script of a profile: faults that happen at a time after the node's start. Each step is one call on the SimulatedHardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from device_plugin.config.values import camel_case
from device_plugin.simulation.changes import CHANGEABLE, new_value
from device_plugin.simulation.live import LONGEST_DELAY_SECONDS
from device_plugin.simulation.values import MigProfile, Version

if TYPE_CHECKING:
    from device_plugin.simulation.hardware import SimulatedHardware


def _number_or_text(value: object) -> object:
    """Said once, where pydantic would tell of each alternative that it tried."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("expected a number or a name")
    return value


NumberOrName = Annotated[int | str, BeforeValidator(_number_or_text)]
GpuName = NumberOrName  # a GPU's index or UUID
Profiles = Annotated[tuple[MigProfile, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]


def _changes(values: dict[Any, Any]) -> dict[str, Any]:
    """The values as `SimulatedHardware.set` takes them, or an error for each that it would refuse."""
    changes: dict[str, Any] = {}
    errors: list[InitErrorDetails] = []
    for key, value in values.items():
        name = _snake(str(key))
        try:
            changes[name] = _change(name, value)
        except ValueError as error:
            refusal = PydanticCustomError("change", "{why}", {"why": str(error)})
            errors.append(InitErrorDetails(type=refusal, loc=(str(key),), input=value))
    if errors:
        raise ValidationError.from_exception_data("values", errors)
    return changes


def _change(name: str, value: object) -> object:
    if name not in CHANGEABLE:
        raise ValueError(f"not a property that changes; expected one of {', '.join(map(camel_case, sorted(CHANGEABLE)))}")
    return new_value(name, value)


class _Step(BaseModel):
    model_config = ConfigDict(
        alias_generator=camel_case, populate_by_name=True, extra="forbid", strict=True, frozen=True, allow_inf_nan=False
    )

    at_seconds: float = Field(ge=0)


class Xid(_Step):
    do: Literal["xid"]
    gpu: GpuName
    xid: int = Field(ge=0)
    gpu_instance: int | None = None
    compute_instance: int | None = None

    def play(self, node: SimulatedHardware) -> None:
        node.xid(self.gpu, self.xid, self.gpu_instance, self.compute_instance)


class Lose(_Step):
    do: Literal["lose"]
    gpu: GpuName

    def play(self, node: SimulatedHardware) -> None:
        node.lose(self.gpu)


class Restore(_Step):
    do: Literal["restore"]
    gpu: GpuName

    def play(self, node: SimulatedHardware) -> None:
        node.restore(self.gpu)


class Repartition(_Step):
    do: Literal["repartition"]
    gpu: GpuName
    mig: Profiles

    def play(self, node: SimulatedHardware) -> None:
        node.repartition(self.gpu, self.mig)


class Change(_Step):
    do: Literal["set"]
    gpu: GpuName
    values: Annotated[dict[Any, Any], AfterValidator(_changes)]

    def play(self, node: SimulatedHardware) -> None:
        node.set(self.gpu, **self.values)


class Answer(_Step):
    do: Literal["answer"]
    call: str
    code: NumberOrName
    gpu: GpuName | None = None
    times: int | None = Field(default=None, ge=1)

    def play(self, node: SimulatedHardware) -> None:
        node.answer(self.call, self.code, gpu=self.gpu, times=self.times)


class Hang(_Step):
    do: Literal["hang"]
    call: str
    gpu: GpuName | None = None

    def play(self, node: SimulatedHardware) -> None:
        node.hang(self.call, gpu=self.gpu)


class Release(_Step):
    do: Literal["release"]

    def play(self, node: SimulatedHardware) -> None:
        node.release()


class Slow(_Step):
    do: Literal["slow"]
    seconds: float = Field(ge=0, le=LONGEST_DELAY_SECONDS)

    def play(self, node: SimulatedHardware) -> None:
        node.slow(self.seconds)


class UnloadDriver(_Step):
    do: Literal["unload-driver"]

    def play(self, node: SimulatedHardware) -> None:
        node.unload_driver()


class LoadDriver(_Step):
    do: Literal["load-driver"]
    version: Version = None

    def play(self, node: SimulatedHardware) -> None:
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
