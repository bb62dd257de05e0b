"""Extend the manifest of a search, and refuse to mix it with another search."""

import contextlib

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import AnyPath
from tune_calib.results.folders import read_identity
from tune_calib.results.manifests import (
    CommandRecord,
    SearchManifest,
    SearchOutcome,
    SearchRequestRecord,
)
from tune_calib.results.plugin_folders import merge_records
from tune_calib.results.tables import read_table
from tune_calib.spec.names import JOURNAL, SEARCH_EVALUATED, SEARCH_MANIFEST
from tune_calib.text import format_count, mask_url
from tune_calib.tuning.folder import build_foreign_error, refuse_foreign
from tune_calib.tuning.search.definition import NO_RUNG, Candidates


def find_manifest(out: AnyPath) -> SearchManifest | None:
    """Read the manifest of the search in a folder; None if it is missing or damaged."""
    with contextlib.suppress(DamagedFileError, FileNotFoundError):
        return SearchManifest.read(out)
    return None


def extend_manifest(new: SearchManifest, out: AnyPath) -> SearchManifest:
    """Extend a manifest by that of its folder; trials may be added to a search."""
    old = find_manifest(out)
    if old is None:
        return new.model_copy(update={"trials": _restore_length(new, out)})
    if old.search != new.search:
        why = _describe_difference(old.question, new.question)
        raise build_foreign_error(out, "search", old.command, why)
    recorded = old.study_storage and mask_url(old.study_storage)
    if recorded != new.study_storage:
        raise UserError(
            f"the study of {out} is stored in {recorded or 'its journal file'}; name the same "
            "`study_storage`"
        )
    if (out / SEARCH_EVALUATED).exists():
        raise UserError(f"{out} was evaluated on test, which ends its search; name another `out`")
    commands = old.commands or [CommandRecord(command=old.command, trials=old.trials)]
    if new.trials > old.trials:
        is_same = commands[-1].command == new.command  # an experiment file or a budget that grew
        now = CommandRecord(command=new.command, trials=new.trials)
        commands = [*(commands[:-1] if is_same else commands), now]
    further = {
        "command": old.command,  # the first one, which the page shows
        "commands": commands,
        "trials": max(old.trials, new.trials),
        **({"plugins": needs} if (needs := merge_records(old.plugins, new.plugins)) else {}),
    }
    return new.model_copy(update=further).over(old)


def _describe_difference(old: SearchRequestRecord, new: SearchRequestRecord) -> str:
    """Describe the difference between two definitions for an error."""
    before, after = old.plain(), new.plain()
    keys = [key for key in after if before.get(key) != after[key]]
    text = f", which differs in {', '.join(keys)}"
    if keys == ["defaults"]:
        text += (
            ": the recipe has changed since it began, and its trials cannot be mixed with new "
            "ones; tune-calib resume continues with the old recipe"
        )
    if keys == ["seeds"]:
        both = (old.seeds, new.seeds)
        was, now = (len(s.network) * (1 if s.is_paired else len(s.head)) for s in both)
        text += (
            f": a suggestion has {format_count(was, 'trial')}, but would now have {now} (seeds of "
            "an experiment file and of its entries apply to searches too; those below search "
            "override them)"
        )
    return text


def _restore_length(new: SearchManifest, out: AnyPath) -> int:
    """Return the number of suggestions of a new search, or of one that lost its manifest."""
    before = read_identity(out)
    if before is None:
        refuse_foreign(out, SEARCH_MANIFEST, JOURNAL)
        return new.trials
    if before != new.search:
        raise build_foreign_error(out, "search", f"its {SEARCH_MANIFEST} is lost")
    requested = 0
    with contextlib.suppress(DamagedFileError, FileNotFoundError):
        requested = SearchOutcome.read(out).asked
    if (out / SEARCH_EVALUATED).exists() and new.trials > requested:
        raise UserError(f"{out} was evaluated on test; to restore it, set `trials` to {requested}")
    return max(requested, new.trials)


def list_first_specs(candidates: Candidates) -> dict[str, list[str]]:
    """List the spec hashes of baseline and defaults, which versions may change."""
    point = next(iter(candidates.first()), {})  # of suggestion 0, as in rows
    trials = {"baseline": candidates.baseline(), "defaults": candidates.trials(point, 0)}
    return {name: [trial.spec.hash for trial in own] for name, own in trials.items()}


def refuse_other_specs(out: AnyPath, candidates: Candidates) -> None:
    """Refuse to continue a search whose trials have other settings in this version."""
    old = find_manifest(out)
    before = old and old.specs
    if not before:  # then they are in its rows
        rows = read_table(out, "trials", columns=["rung", "spec_hash"]).to_pylist()
        rungs = {"baseline": NO_RUNG, "defaults": 0}
        before = {
            n: [r["spec_hash"] for r in rows if r["rung"] == rung] for n, rung in rungs.items()
        }
    now = list_first_specs(candidates)
    for name, text in (("baseline", "the baseline"), ("defaults", f"{candidates.method} itself")):
        if not set(before[name]) <= set(now[name]):
            raise UserError(
                f"{out}: this search began with a version that gave {text} other settings, and "
                "trials of both cannot be mixed; continue with that version, or search in a new "
                "`out`"
            )
