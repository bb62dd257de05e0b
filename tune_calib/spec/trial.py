"""Trial specs: the frozen, validated and hashable contents of data, network, head and post-hoc.

A spec contains every setting that can change a number and nothing else (no paths, devices or
progress), with all defaults written out, so that its hash is its identity.
"""

import json
from functools import cached_property
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, Field, model_validator

from tune_calib.errors import UserError
from tune_calib.files.documents import hash_text
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import IMPORTED
from tune_calib.spec.slots.base import PostHocSlot, Slot, build
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.slots.pool import PoolSlot
from tune_calib.spec.strict import StrictModel


class TrialSpec(StrictModel):
    """One pipeline: data + network + optional head + optional post-hoc."""

    version: Literal[1] = 1
    data: DataSlot = Field(default_factory=DataSlot)
    network: NetworkSlot
    head: HeadSlot | None = None
    posthoc: PostHocSlot | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        method = METHODS[self.network.method]
        if "stages" in method.needs and not BACKBONES[self.network.backbone].has_stages:
            raise UserError(
                f"network method {method.name!r} runs the backbone stage by stage, which "
                f"{self.network.backbone!r} does not support; use e.g. resnet18"
            )
        if self.network.weights is not None and self.data.holds_out_train:
            seen = (BACKBONES[name].trained_on.get(self.network.weights) for name in BACKBONES)
            if self.data.dataset in seen:
                raise UserError(
                    f"the weights {self.network.weights} were trained on all training images of "
                    f"{self.data.dataset}, so none is left for selection; use `holdout` test",
                    "network.weights",
                )
        self._fit_execution()
        self._fit_import()
        self._fit_pool()
        self._fit_features()
        if self.posthoc:
            classes = METHODS[self.posthoc.method].classes
            if classes not in (None, self.data.info.classes):
                raise UserError(
                    f"post-hoc method {self.posthoc.method!r} takes {classes} classes, and "
                    f"{self.data.dataset!r} has {self.data.info.classes}; leave it out"
                )
        start = getattr(getattr(self.head, "params", None), "start", None)
        if start not in (None, "fresh") and not method.trains_own_head:
            raise UserError(
                f"a head cannot continue from network method {method.name!r}; use start=fresh"
            )
        return self

    def _fit_execution(self) -> None:
        slots = [self.head] if self.network.is_frozen else [self.network, self.head]
        for slot in filter(None, slots):
            if self.network.is_captured and not METHODS[slot.method].implementation.is_capturable:
                raise UserError(
                    f"network.execution={self.network.execution}: a step of {slot.kind} method "
                    f"{slot.method!r} cannot be captured; use auto or eager"
                )
        if self.network.execution == "compiled" and "stages" in METHODS[self.network.method].needs:
            raise UserError(
                f"network.execution=compiled: {self.network.method!r} runs it by stages; use graph"
            )

    def _fit_import(self) -> None:
        is_imported = self.data.imported is not None
        if is_imported != (self.network.backbone == IMPORTED):
            message = f"imported data and network.backbone={IMPORTED} go together; leave it out"
            raise UserError(message, "network.backbone")
        if not is_imported or self.head is None:
            return
        if self.head.augment != "none" or self.head.bn_mode != "eval":
            setting = "head.bn_mode" if self.head.augment == "none" else "head.augment"
            raise UserError(f"{setting} needs images, and imported features are one clean view")
        record = self.data.import_record
        if record is not None and not (record.has_heads and record.select):
            lacks = "the split train" if record.width else "features"
            if record.has_heads:
                lacks = "select"
            raise UserError(
                f"head method {self.head.method!r} is trained on features of train, but the import "
                f"has no {lacks}; use post-hoc methods, or import them too"
            )

    def _fit_pool(self) -> None:
        pool = self.network.pool
        if pool and self.head:
            raise UserError("a head is trained on one network, not on a pool; leave it out")
        if pool and pool.posthoc and (self.is_redrawn or self.data.calib_size):
            raise UserError(
                "pool.posthoc fits the members to `calib` before they are pooled, so it does not "
                "go with `split_seeds` or `calib_sizes`; leave one out"
            )

    def _fit_features(self) -> None:
        pool, record = self.network.pool, self.data.import_record
        for slot in (self.posthoc, pool and pool.posthoc):
            is_lacking = pool is not None or (record is not None and not record.width)
            if slot and slot.reads_features and is_lacking:
                raise UserError(
                    f"post-hoc method {slot.method!r} reads features of one network, which pools "
                    "and imported logits do not have; leave it out"
                )

    @property
    def reads_features(self) -> bool:
        """Return whether its post-hoc method reads features besides logits."""
        return self.posthoc is not None and self.posthoc.reads_features

    @property
    def members(self) -> "list[TrialSpec]":
        """Return the trials that a pool averages, each with its transform; none without a pool."""
        if (pool := self.network.pool) is None:
            return []
        specs = []
        for member in pool.members:
            network, data = self.network.model_copy(update={"pool": None}), self.network_data
            if isinstance(member, NetworkSlot):
                network = member.model_copy(update={"execution": self.network.execution})
            else:
                data = data.model_copy(update={"imported": member})
            slots: Any = {"version": 1, "data": data, "network": network}
            specs.append(TrialSpec.model_construct(**slots, posthoc=pool.posthoc))
        return specs

    @classmethod
    def build(cls, **slots: Any) -> Self:
        """Build a spec from dictionaries, e.g. of a result row, with the program's defaults."""
        return build(cls, slots)

    def canonical_json(self) -> str:
        return canonical_json(self)

    def __copy__(self) -> Self:
        """Copy the settings but no identity, since ``model_copy`` may change settings next."""
        settings = {name: getattr(self, name) for name in type(self).model_fields}
        return cast(Self, self.model_construct(**settings))

    @cached_property
    def hash(self) -> str:
        return content_hash(self)

    @property
    def plugins(self) -> set[str]:
        contents: set[str] = set()
        pool = self.network.pool
        slots = [self.data, self.network, self.head, self.posthoc, *self.network.members]
        for slot in (*slots, pool and pool.posthoc):
            if slot and slot.plugin:
                contents.update(slot.plugin.split("+"))
        return contents

    @property
    def is_redrawn(self) -> bool:
        """Return whether ``split_seed`` draws only `select` and `calib`, not train, anew."""
        if self.data.split_seed is None:
            return False
        return self.network.is_frozen or not (
            self.data.holds_out_train or self.network.reads_held_out
        )

    @property
    def is_brief(self) -> bool:
        """Return whether it may be one of hundreds of draws, of which less is computed and kept."""
        return self.is_redrawn and self.head is None

    @property
    def network_data(self) -> DataSlot:
        defaults: dict[str, None] = {}
        if self.is_redrawn:
            defaults["split_seed"] = None
        if not self.network.reads_calib:
            defaults["calib_size"] = None
        return self.data.model_copy(update=defaults)

    @cached_property
    def network_id(self) -> str:
        """Return the identity of the trained network: the hash of the data and network slots."""
        # As a trial: the hash of a trial without head and post-hoc is the network's identity.
        slots: Any = {"version": 1, "data": self.network_data, "network": self.network}
        return content_hash(TrialSpec.model_construct(**slots))


SLOT_TYPES: dict[str, type[Slot]] = {
    "data": DataSlot,
    "network": NetworkSlot,
    "head": HeadSlot,
    "posthoc": PostHocSlot,
    "pool": PoolSlot,
}


def canonical_json(model: BaseModel) -> str:
    """Serialise a model to the JSON text that is hashed."""
    # No spaces and sorted keys: hashes do not depend on the order in which fields are declared.
    return json.dumps(model.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


def content_hash(model: BaseModel) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a model's canonical JSON."""
    # 64 bits: the probability that two of the at most 100,000 trials of a plan share a hash is
    # below 1e-9.
    return hash_text(canonical_json(model))[:16]
