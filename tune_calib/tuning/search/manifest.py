"""The manifest of a search: how a folder is continued, and which folders are refused."""

from typing import Any

from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.folders import read_identity
from tune_calib.results.manifests import CommandRecord, SearchManifest
from tune_calib.spec.names import JOURNAL, REUSED, SEARCH_EVALUATED, SEARCH_MANIFEST
from tune_calib.text import mask_url
from tune_calib.tuning.folder import build_foreign_error, refuse_foreign
from tune_calib.tuning.search.definition import Candidates, list_hashes


def list_first_specs(candidates: Candidates) -> dict[str, list[str]]:
    """List the spec hashes of baseline and defaults, which versions may change."""
    return {
        "baseline": list_hashes(candidates.baseline()),
        "defaults": list_hashes(candidates.trials({}, 0)),
    }


def refuse_other_specs(out: AnyPath, candidates: Candidates) -> None:
    """Refuse to continue a search whose trials have other settings in this version."""
    old = SearchManifest.find(out)
    if old is None:
        return
    new_specs = list_first_specs(candidates)
    for name, text in (("baseline", "the baseline"), ("defaults", f"{candidates.method} itself")):
        if not set(old.specs[name]) <= set(new_specs[name]):
            raise UserError(
                f"{out}: this search began with a version that gave {text} other settings, and "
                "trials of both cannot be mixed; continue with that version, or search in a new "
                "`out`"
            )


def extend_manifest(new: SearchManifest, out: AnyPath) -> SearchManifest:
    old = SearchManifest.find(out)
    if old is None:
        identity = read_identity(out)
        if identity is None:
            refuse_foreign(out, SEARCH_MANIFEST, JOURNAL, REUSED)
        elif identity != new.search:
            raise build_foreign_error(out, "search", f"its {SEARCH_MANIFEST} is lost")
        if (out / SEARCH_EVALUATED).exists():
            raise UserError(f"{out} was evaluated on test, and its {SEARCH_MANIFEST} is lost")
        return new
    if old.search != new.search:
        old_fields, new_fields = old.question.plain(), new.question.plain()
        keys = [key for key in new_fields if old_fields.get(key) != new_fields[key]]
        why = f", which differs in {', '.join(keys)}"
        if keys == ["defaults"]:
            why += ": its recipe has changed meanwhile; tune-calib resume keeps the old one"
        raise build_foreign_error(out, "search", old.command, why=why)
    recorded = old.study_storage and mask_url(old.study_storage)
    if recorded != new.study_storage:
        raise UserError(
            f"the study of {out} is stored in {recorded or 'its journal file'}; name the same "
            "`study_storage`"
        )
    if (out / SEARCH_EVALUATED).exists():
        raise UserError(f"{out} was evaluated on test, which ends its search; name another `out`")
    commands = old.commands
    if new.trials > old.trials:
        if commands[-1].command == new.command:  # an experiment file or a budget that grew
            commands = commands[:-1]
        commands = [*commands, CommandRecord(command=new.command, trials=new.trials)]
    further: dict[str, Any] = {
        "command": old.command,  # the first one, which the page shows
        "commands": commands,
        "trials": max(old.trials, new.trials),
    }
    if records := {record.name: record for record in [*old.plugins, *new.plugins]}:
        further["plugins"] = list(records.values())
    return new.model_copy(update=further).over(old)
