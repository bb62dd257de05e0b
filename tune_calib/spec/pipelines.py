"""Methods and pipelines as requests name them, each with settings of its own."""

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import NOT_SETTINGS, POOL
from tune_calib.spec.strict import Name, Part

Pipeline = Annotated[str, Name(METHODS, joint="+")]


class MethodSettings(Part):
    """Settings of the slots of a pipeline."""

    network: dict[str, Any] = Field(default_factory=dict)
    """Settings of the network and its method."""
    head: dict[str, Any] = Field(default_factory=dict)
    """Settings of the head and its method."""
    posthoc: dict[str, Any] = Field(default_factory=dict)
    """Settings of the post-hoc method."""
    pool: dict[str, Any] = Field(default_factory=dict)
    """Settings of the pool."""

    @model_validator(mode="after")
    def _has_no_names(self) -> "MethodSettings":
        for slot, settings in self.by_slot().items():
            for key in settings:
                if key in NOT_SETTINGS:
                    raise ValueError(f"{slot}.{key} is not a setting; methods and seeds set it")
        return self

    def by_slot(self) -> dict[str, dict[str, Any]]:
        return {slot: settings for slot, settings in self.model_dump().items() if settings}


class Method(Part):
    """A method or pipeline with settings of its own."""

    method: Annotated[str, Name(METHODS, joint="+", pool=POOL)]
    """method, or several of different kinds as ls+mac_cal+temperature or pool:ce+temperature"""
    set: MethodSettings = MethodSettings()
    """settings of this method only"""

    def __str__(self) -> str:
        settings = self.set.by_slot()
        return json.dumps({"method": self.method, "set": settings}) if settings else self.method


def _read_method(value: Any) -> Any:
    """Return a method or pipeline as a mapping; one with settings is JSON in a command."""
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.startswith("{") else {"method": value}


MethodOrName = Annotated[Method, BeforeValidator(_read_method, json_schema_input_type=str | Method)]
