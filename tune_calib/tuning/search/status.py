"""The progress of a search, without what it takes to go on with it: no torch, no Ray."""

from collections import Counter

from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.results.folders import read_search_manifest
from tune_calib.results.tables import read_table
from tune_calib.spec.names import SEARCH_EVALUATED
from tune_calib.text import format_count
from tune_calib.tuning.search.definition import SearchDefinition
from tune_calib.tuning.search.storage import find_storage, lost_database
from tune_calib.tuning.search.study import OPEN, SearchStudy


def search_status(out: AnyPath, study_storage: str | None = None) -> str:
    """Describe the progress of a search without writing; its driver may be running."""
    rows = read_table(out, "trials", columns=["status"])
    counts = Counter(rows["status"].to_pylist())
    trials = f"{format_count(counts.total(), 'trial')} with a result ({_format_counts(counts)})"
    manifest = read_search_manifest(out)
    try:
        with lost_database(study_storage):
            url = find_storage(out, study_storage, manifest.study_storage)
            # A grid rests on the method's defaults, and these on the recipe; so does an identity.
            needs_recipe = manifest.question.sampler == "grid" or not manifest.search
            definition = SearchDefinition.read(manifest, out, needs_recipe)
            # By the name in the manifest: its plug-ins need not be loaded here.
            study = SearchStudy(definition, out, url, is_read_only=True, identity=manifest.search)
            states = Counter(state for state in study.states() if state not in OPEN)
            ended, planned = states.total(), study.planned(manifest.trials)
    except UserError as error:
        return f"{out}: {trials}; how many suggestions ended is not known: {error}"
    suggestions = f"{ended} of {planned} suggestions ended ({_format_counts(states)})"
    lines = [f"{out}: {suggestions}; {trials}"]
    if planned < manifest.trials:
        lines.append(f"{manifest.trials} were asked for, and there are no more points")
    if (out / SEARCH_EVALUATED).exists():
        lines.append(f"evaluated on test: {out / 'evaluation'}")
    elif ended < planned:
        lines.append(f"go on: tune-calib resume {out}")
    else:
        lines.append(f"finished; tables, figures and a page: tune-calib report {out}")
    return "\n".join(lines)


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items())) or "none yet"
