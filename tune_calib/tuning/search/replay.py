"""Fit a search to the table by which it is replayed."""

from tune_calib.errors import UserError
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.settings import restore_recipe
from tune_calib.tuning.search.definition import SearchDefinition
from tune_calib.tuning.work.replay import load_table


def read_request(path: str, seeds: Seeds) -> ResolvedRequest:
    """Return the settings that a table does not vary, with the seeds of a search."""
    record = load_table(path).record
    recipe = restore_recipe(record.given, record.defaults, record.recipe)
    return ResolvedRequest(record.given, seeds, recipe, own_recipes=record.own_recipes)


def check_table(definition: SearchDefinition, path: str) -> None:
    """Refuse another table than that of a search, or one of another space or other metrics."""
    table, candidates = load_table(path), definition.candidates
    if table.digest != definition.replay["table"]:
        raise UserError(f"{path} has changed since this search began; restore it")
    if table.record.method != candidates.method:
        raise UserError(f"{path} is a table of {table.record.method}, not {candidates.method}")
    space = {name: setting.plain() for name, setting in candidates.space.settings.items()}
    if space != table.record.space:
        raise UserError(
            f"{path} was made over another space of {candidates.method}; leave `grid` out, or use "
            "the version of the program that made it"
        )
    for name in definition.objective.metrics:
        if name not in table.metrics:
            raise UserError(
                f"{path} has no {name}; it has {', '.join(table.metrics)}", setting="metric"
            )
