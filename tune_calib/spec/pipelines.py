"""Methods and pipelines as requests name them, each with settings of its own."""

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import NOT_SETTINGS
from tune_calib.spec.strict import Name, Part
from tune_calib.spec.trial import SLOT_TYPES

Pipeline = Annotated[str, Name(METHODS, joint="+")]


def _slot_schema(schema: dict[str, Any]) -> None:
    for slot in schema["properties"]:
        keys = SLOT_TYPES[slot].model_json_schema()["properties"]
        method_keys: dict[str, list[dict[str, Any]]] = {}
        for method in METHODS.values():
            if method.kind == slot:
                for key, value in method.params.model_json_schema()["properties"].items():
                    method_keys.setdefault(key, []).append(value | {"title": method.name})
        # Settings of several methods are alternatives.
        for key, values in method_keys.items():
            keys[key] = values[0] if len(values) == 1 else {"anyOf": values}
        properties = {}
        for key, value in keys.items():
            if key not in NOT_SETTINGS:
                # The target of $ref is checked when the file is read.
                properties[key] = {} if "$ref" in str(value) else value
        schema["properties"][slot] |= {"properties": properties, "additionalProperties": False}


class MethodSettings(Part):
    """Settings of the slots of a pipeline."""

    model_config = ConfigDict(json_schema_extra=_slot_schema)

    network: dict[str, Any] = Field(default_factory=dict)
    """Settings of the network and its method."""
    head: dict[str, Any] = Field(default_factory=dict)
    """Settings of the head and its method."""
    posthoc: dict[str, Any] = Field(default_factory=dict)
    """Settings of the post-hoc method."""

    @model_validator(mode="after")
    def _refuse_names(self) -> "MethodSettings":
        for slot, settings in self.by_slot().items():
            for key in settings:
                if key in NOT_SETTINGS:
                    raise ValueError(f"{slot}.{key} is not a setting; methods and seeds set it")
        return self

    def by_slot(self) -> dict[str, dict[str, Any]]:
        """Return the settings of the slots that have any."""
        return {slot: settings for slot, settings in self.model_dump().items() if settings}


class Method(Part):
    """A method or pipeline with settings of its own."""

    method: Pipeline
    """method, or several of different kinds as ls+mac_cal+temperature"""
    set: MethodSettings = MethodSettings()
    """settings of this method only"""

    def __str__(self) -> str:
        """Return the method as a command takes it."""
        settings = self.set.by_slot()
        return json.dumps({"method": self.method, "set": settings}) if settings else self.method


def _read_method(value: Any) -> Any:
    """Return a method or pipeline as a mapping; one with settings is JSON in a command."""
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.startswith("{") else {"method": value}


MethodOrName = Annotated[Method, BeforeValidator(_read_method, json_schema_input_type=str | Method)]
