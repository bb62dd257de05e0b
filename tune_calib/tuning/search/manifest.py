"""What the folder of a search remembers of it, and what else it holds that must not be mixed."""

import contextlib
from dataclasses import replace

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import AnyPath
from tune_calib.results.folders import read_identity
from tune_calib.results.manifests import (
    VERSION,
    CommandRecord,
    QuestionRecord,
    SearchManifest,
    SearchOutcome,
    SeedsRecord,
)
from tune_calib.results.plugin_folders import merge_records, to_records
from tune_calib.results.tables import read_table
from tune_calib.spec.names import JOURNAL, SEARCH_EVALUATED, SEARCH_MANIFEST
from tune_calib.text import mask_url
from tune_calib.tuning.caption import recipe_record, titles
from tune_calib.tuning.folder import build_foreign_error, refuse_foreign
from tune_calib.tuning.search.candidates import NO_RUNG, Candidates
from tune_calib.tuning.search.job import SearchJob


def as_begun(job: SearchJob) -> SearchJob:
    """Take over the lag of the search that the folder holds.

    Nobody asks for a lag; earlier versions took it from the machine.
    """
    old = begun(job.out)
    if old is not None:
        return _with_lag(job, old.question.lag)
    # The manifest may be lost; the rows keep the identity of the whole question.
    before = read_identity(job.out)
    slow = _with_lag(job, 1)
    return slow if slow.question.identity == before else job


def _with_lag(job: SearchJob, lag: int) -> SearchJob:
    return replace(job, question=replace(job.question, lag=lag))


def search_manifest(job: SearchJob) -> SearchManifest:
    """Build the manifest of a search in its folder; trials may be added to the same search."""
    old = begun(job.out)
    new = _new_manifest(job)
    # None also where it is lost: what was asked for then stands in the outcome.
    if old is None:
        return new.model_copy(update={"trials": _restored(job, new.search)})
    _refuse_other(old, new, job.out)
    # The command that began it, since the page tells how the search came about.
    further = {
        "command": old.command,
        "commands": _commands(old, new),
        "trials": max(old.trials, new.trials),
        **({"plugins": needs} if (needs := merge_records(old.plugins, new.plugins)) else {}),
    }
    return new.model_copy(update=further).over(old)


def _new_manifest(job: SearchJob) -> SearchManifest:
    question, site = job.question, job.site
    candidates = question.candidates()
    manifest = SearchManifest(
        version=VERSION,
        search=question.identity,
        question=question.record(),
        rule=question.objective.rule(),
        trials=job.suggestions,
        command=site.command,
        commands=[CommandRecord(command=site.command, trials=job.suggestions)],
        specs=specs_of(candidates),
        store=None if site.store == site.out / "store" else str(site.store.resolve()),
        data_root=str(site.data_root.resolve()) if site.data_root else None,
        address=site.address,
        gpus=site.gpus,
        at_once=job.at_once,
        study_storage=job.study_storage and mask_url(job.study_storage),
        titles=titles(candidates.baseline()),
    )
    further = {
        **({"plugins": to_records(needs)} if (needs := job.plugins()) else {}),
        **({"recipe": recipe} if (recipe := recipe_record(question.asked)) else {}),
    }
    return manifest.model_copy(update=further)


def _refuse_other(old: SearchManifest, new: SearchManifest, out: AnyPath) -> None:
    """Refuse to go on with another search than the one that a folder holds."""
    if old.search != new.search:
        raise build_foreign_error(
            out, "search", old.command, _difference(old.question, new.question)
        )
    # Earlier versions masked less.
    before = old.study_storage and mask_url(old.study_storage)
    if before != new.study_storage:
        raise UserError(
            f"the study of {out} lies in {before or 'its journal file'}: name the "
            "same `study_storage`"
        )
    if (out / SEARCH_EVALUATED).exists():
        raise UserError(f"{out} was evaluated on test: its search is over; name another `out`")


def _difference(old: QuestionRecord, new: QuestionRecord) -> str:
    """Describe how two definitions differ, for an error."""
    before, now = old.plain(), new.plain()
    keys = [key for key in now if before.get(key) != now[key]]
    text = f", which differs in {', '.join(keys)}"
    if keys == ["defaults"]:
        text += (
            ": the recipe was another one when it began, and its trials cannot be mixed with new "
            "ones; tune-calib resume goes on as it began"
        )
    if keys == ["seeds"]:
        text += (
            f": its suggestions have {_count(old.seeds)}, and {_count(new.seeds)} are asked "
            "for now (seeds of a sweep file and of its entries count for searches too; those below "
            "search stand above them)"
        )
    return text


def _count(seeds: SeedsRecord) -> str:
    networks, heads = len(seeds.network), len(seeds.head)
    text = f"{networks}" if seeds.is_paired else f"{networks} x {heads}"
    return f"{text} seed" + "s" * (text != "1")


def _commands(old: SearchManifest, new: SearchManifest) -> list[CommandRecord]:
    """List the commands that made a search as long as it is, in their order."""
    commands = old.commands or [CommandRecord(command=old.command, trials=old.trials)]
    if new.trials <= old.trials:
        return commands
    is_same = commands[-1].command == new.command  # a sweep file or a budget that grew
    now = CommandRecord(command=new.command, trials=new.trials)
    return [*(commands[:-1] if is_same else commands), now]


def specs_of(candidates: Candidates) -> dict[str, list[str]]:
    """Return the spec hashes of baseline and defaults, which differ between versions."""
    # The point of suggestion 0, so that rows of earlier versions compare.
    point = next(iter(candidates.first()), {})
    trials = {"baseline": candidates.baseline(), "defaults": candidates.trials(point, 0)}
    return {name: [trial.spec.hash for trial in own] for name, own in trials.items()}


def refuse_other_specs(out: AnyPath, candidates: Candidates) -> None:
    """Refuse to go on with a search whose trials would be others now."""
    old = begun(out)
    before = (old and old.specs) or _specs_of_rows(out)
    now = specs_of(candidates)
    for name, text in (("baseline", "the baseline"), ("defaults", f"{candidates.method} itself")):
        if not set(before[name]) <= set(now[name]):
            raise UserError(
                f"{out}: the version that began this search gave {text} other settings than this "
                "one, and their trials cannot be mixed: go on with that version, or search in a "
                "new `out`"
            )


def _specs_of_rows(out: AnyPath) -> dict[str, list[str]]:
    """Return the hashes of ``specs_of`` from the rows, for a manifest without them."""
    rows = read_table(out, "trials").select(["rung", "spec_hash"]).to_pylist()
    rungs = {"baseline": NO_RUNG, "defaults": 0}
    return {n: [r["spec_hash"] for r in rows if r["rung"] == rung] for n, rung in rungs.items()}


def begun(out: AnyPath) -> SearchManifest | None:
    """Read the manifest of the search in a folder; None if there is none, or it is lost."""
    with contextlib.suppress(DamagedFileError, FileNotFoundError):
        return SearchManifest.read(out)
    return None


def _restored(job: SearchJob, identity: str) -> int:
    """Return the number of suggestions of a new search, or of one that lost its manifest."""
    out = job.out
    before = read_identity(out)
    if before is None:
        refuse_foreign(out, SEARCH_MANIFEST, JOURNAL)
        return job.suggestions
    if before != identity:
        raise build_foreign_error(out, "search", f"its {SEARCH_MANIFEST} is lost")
    asked = 0
    with contextlib.suppress(DamagedFileError, FileNotFoundError):
        asked = SearchOutcome.read(out).asked
    if (out / SEARCH_EVALUATED).exists() and job.suggestions > asked:
        raise UserError(f"{out} was evaluated on test: to restore it, ask for `trials` {asked}")
    return max(asked, job.suggestions)
