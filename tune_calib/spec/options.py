"""From the options of a command, or of a call in Python, to settings by slot and to seeds."""

from collections.abc import Iterable
from os import PathLike, fspath
from typing import Any

from tune_calib.errors import UserError
from tune_calib.spec import plugins
from tune_calib.spec.asked import Seeds
from tune_calib.spec.names import IMPORTED, NOT_SETTINGS, SLOTS
from tune_calib.spec.settings import refuse_unknown_names


def settings(
    dataset: str = "digits",
    imported: str | None = None,
    backbone: str | None = None,
    weights: str | PathLike[str] | None = None,
    holdout: str | None = None,
    norm: Any = None,
    epochs: int | None = None,
    head_epochs: int | None = None,
    portable: bool = False,
    further: Iterable[tuple[str, Any]] = (),
) -> dict[str, dict[str, Any]]:
    """Settings by slot that were asked for, from the options that give any.

    Args:
        dataset: name of a data set.
        imported: name of what was imported, instead of a data set.
        backbone: name of a backbone, or ``FILE.py:FUNCTION``.
        weights: file of a network that is not trained.
        holdout: part that ``select`` and ``calib`` are of.
        norm: constants of the pixels.
        epochs: of the network.
        head_epochs: of the heads.
        portable: the same numbers on other machines.
        further: settings as (``slot.key``, value).

    Raises:
        UserError: a setting has no slot, is none, or is given twice, or a name is unknown.
    """
    if weights is not None and epochs is not None:
        raise UserError(
            "`weights` is a network that is not trained: leave `epochs` out; to train it on, "
            f"`set` network.weights={fspath(weights)}"
        )
    if imported is not None and dataset != "digits":
        raise UserError("`imported` takes the place of `dataset`; give one of them")
    given: dict[str, dict[str, Any]] = {"data": {"dataset": dataset}}
    if imported is not None:
        given = {"data": {"dataset": IMPORTED, "imported": imported}}
    for slot, key, option in (
        ("data", "holdout", holdout),
        ("data", "norm", norm),
        ("network", "backbone", backbone),
        ("network", "weights", fspath(weights) if weights is not None else None),
        ("network", "epochs", epochs if weights is None else 0),
        ("head", "epochs", head_epochs),
        ("network", "portable", portable or None),
    ):
        if option is not None:
            given.setdefault(slot, {})[key] = option
    for name, value in further:
        slot, key = _slot_and_key(name)
        if key in given.get(slot, {}):
            raise UserError(
                f"`set` {name} is given twice (`dataset`, `backbone`, `epochs`, `head_epochs`, "
                "`weights`, `holdout` and `norm` give settings too); name it once"
            )
        given.setdefault(slot, {})[key] = value
    network = given.get("network", {})
    if isinstance(named := network.get("backbone"), str):
        network["backbone"] = plugins.backbone(named)
    refuse_unknown_names(given)
    return given


def _slot_and_key(name: str) -> tuple[str, str]:
    slot, dot, key = name.partition(".")
    if not dot or slot not in SLOTS:
        raise UserError(f"`set` {name}: write slot.key with slot one of {', '.join(SLOTS)}")
    if key in NOT_SETTINGS:
        raise UserError(f"`set` {name}: the {key} is not a setting; the ladder or `seeds` names it")
    return slot, key


def chosen_seeds(both: int | None, network: int | None, head: int | None) -> Seeds:
    """Seeds of networks and heads.

    Args:
        both: pairs of a network and a head seed.
        network: networks, each with every head seed.
        head: heads for each network.

    Raises:
        UserError: a count is below 1, or the counts contradict each other.
    """
    given = {"seeds": both, "network_seeds": network, "head_seeds": head}
    for option, count in given.items():
        if count is not None and count < 1:
            raise UserError(f"`{option}` must be at least 1, got {count}")
    if both is not None and (network is not None or head is not None):
        raise UserError(
            "`seeds` varies both together; give it, or `network_seeds` and `head_seeds`"
        )
    return Seeds.count(both, network, head)
