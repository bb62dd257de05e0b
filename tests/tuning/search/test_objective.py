import math

import pytest

from tune_calib.cli.entry import as_option
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS, searchable_metrics
from tune_calib.tuning.search.definition import Objective


@pytest.mark.parametrize("name", list(METRICS))
def test_only_what_a_search_computes_and_can_rank_is_optimised(name):
    if METRICS[name].is_searchable:
        assert Objective((name,), 0.01).metrics == (name,)
        return
    with pytest.raises(UserError) as refused:
        Objective((name,), 0.01)
    message = as_option(refused.value)
    assert "\n" not in message
    assert f"--metric {name}" in message
    record = METRICS[name]
    if record.is_of_trials and record.direction is not None:
        assert ", ".join(searchable_metrics()) in message


def test_one_value_that_is_not_finite_makes_a_suggestion_diverge():
    objective = Objective(("ece", "nll"), 0.01)
    row = {"status": "done", "network_seed": 0, "select/ece": 0.1, "select/accuracy": 0.9}
    finite = objective.summarise([{**row, "select/nll": 0.5}], {0: 0.9})
    assert (finite.status, finite.values, finite.drop) == ("done", (0.1, 0.5), 0.0)
    assert objective.summarise([{**row, "select/nll": math.nan}], {0: 0.9}).status == "diverged"
