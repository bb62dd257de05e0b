"""What the parts of a sweep file share: strict keys, names of a registry, settings by slot."""

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import NOT_SETTINGS
from tune_calib.spec.request import Name, Part
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.slots.posthoc import PostHocSlot

Dataset = Annotated[str, Name("data set", DATASETS)]
Backbone = Annotated[str, Name("backbone", BACKBONES)]


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

    network: dict[str, Any] = Field(default_factory=dict)
    """Of the network and its method."""
    head: dict[str, Any] = Field(default_factory=dict)
    """Of the head and its method."""
    posthoc: dict[str, Any] = Field(default_factory=dict)
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

    data: dict[str, Any] = Field(default_factory=dict)
    """Of the data: train_fraction, label_noise, imbalance."""
