"""What the parts of a sweep file share: strict keys, names of a registry, settings by slot."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import NOT_SETTINGS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.slots.posthoc import PostHocSlot
from tune_calib.spec.strict import check_kind
from tune_calib.text import nearest


class Part(BaseModel):
    """A part of a sweep file: unknown keys and values of another kind are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        known = list(cls.model_fields)
        for key in given if isinstance(given, dict) else ():
            if key not in known:
                told = {"key": str(key), "hint": nearest(str(key), known)}
                raise PydanticCustomError("unknown_key", "unknown key '{key}'{hint}", told)
        return given

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_kind(cls, value: Any, info: ValidationInfo) -> Any:
        """What is empty, or a truth value for a number, was not meant."""
        if isinstance(value, str) and not value.strip():
            raise ValueError("must not be empty; leave it out")
        if info.field_name is not None:
            check_kind(value, cls, info.field_name)
        return value


@dataclass(frozen=True)
class Name:
    """A string must be one of the known names.

    Attributes:
        what: is named, for messages.
        known: the names; a registry may know more than it lists.
        joint: what joins several of them.
    """

    what: str
    known: Registry[Any]
    joint: str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Checked behind what the type itself demands."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """The names, so that an editor offers them; more where a registry knows more."""
        names = {"enum": list(self.known)}
        is_open = self.joint is not None or self.known is BACKBONES
        return {"anyOf": [names, {"type": "string"}]} if is_open else names

    def _check(self, value: str) -> str:
        for name in value.split(self.joint):
            if self.joint and not name.strip():
                raise ValueError(f"{value!r} has an empty part")
            try:
                self.known.require(name)
            except UserError as error:
                raise ValueError(str(error)) from None
        return value


def listed(value: Any) -> Any:
    """One text as a list of it."""
    return (value,) if isinstance(value, str) else value


def _share(value: Any) -> Any:
    """``1/3`` as the number that it means."""
    over = str(value).removeprefix("1/")
    return 1 / int(over) if over != str(value) and over.isdigit() and int(over) else value


Dataset = Annotated[str, Name("data set", DATASETS)]
Backbone = Annotated[str, Name("backbone", BACKBONES)]
Share = Annotated[
    float, BeforeValidator(_share, json_schema_input_type=float | str), Field(ge=0, le=1)
]


def _slot_schema(schema: dict[str, Any]) -> None:
    """Tell an editor the keys of every slot: its own, and those of the methods that fill it."""
    slots: dict[str, type[BaseModel]] = {
        "data": DataSlot,
        "network": NetworkSlot,
        "head": HeadSlot,
        "posthoc": PostHocSlot,
    }
    for slot in schema["properties"]:
        keys = slots[slot].model_json_schema()["properties"] | _settings_of_methods(slot)
        allowed = {key: value for key, value in keys.items() if key not in NOT_SETTINGS}
        # What stands behind $ref is checked when the file is read.
        plain = {key: {} if "$ref" in str(value) else value for key, value in allowed.items()}
        schema["properties"][slot] |= {"properties": plain, "additionalProperties": False}


def _settings_of_methods(slot: str) -> dict[str, Any]:
    """Settings by key; of one that several methods have, each with its own meaning and range."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in METHODS:
        if METHODS[name].kind == slot:
            for key, value in METHODS[name].params.model_json_schema()["properties"].items():
                found.setdefault(key, []).append(value | {"title": name})
    return {key: one[0] if len(one) == 1 else {"anyOf": one} for key, one in found.items()}


class MethodSettings(Part):
    """Settings of a pipeline's own slots."""

    model_config = ConfigDict(json_schema_extra=_slot_schema)

    network: dict[str, Any] = {}
    """Of the network and its method."""
    head: dict[str, Any] = {}
    """Of the head and its method."""
    posthoc: dict[str, Any] = {}
    """Of the post-hoc method."""

    @model_validator(mode="after")
    def _refuse_names(self) -> "MethodSettings":
        for slot, asked in self.by_slot().items():
            for key in asked:
                if key in NOT_SETTINGS:
                    raise ValueError(f"{slot}.{key} is no setting; methods and seeds name it")
        return self

    def by_slot(self) -> dict[str, dict[str, Any]]:
        """The settings of the slots that have any."""
        return {slot: asked for slot, asked in self.model_dump().items() if asked}


class Settings(MethodSettings):
    """Settings by slot, as ``--set slot.key=value`` takes them."""

    data: dict[str, Any] = {}
    """Of the data: train_fraction, label_noise, imbalance."""
