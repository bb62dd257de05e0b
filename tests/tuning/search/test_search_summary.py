"""What is said of a choice: its baseline, chance, how it was made, and how often test was read."""

from dataclasses import replace

import pytest

from analysis.report import write_search_report
from analysis.search.load import load_search
from analysis.search.tables import optimism
from analysis.tables.render import body
from tests import fake_results
from tests.analysis.search.test_search_report import POINTS
from tests.support import sample
from tests.tuning.search.support import GIVEN, any_job, definition_of, row
from tune_calib.errors import UserError
from tune_calib.results.manifests import ReadRecord, SearchEvaluated
from tune_calib.results.selection import BASELINE_AT_CHANCE, describe_no_gain
from tune_calib.spec.metrics import METRICS, format_value, searchable_metrics
from tune_calib.spec.request import EvaluateRequest
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.tuning.search.definition import Objective
from tune_calib.tuning.search.evaluate import add_read, build_run

ON_SELECT = searchable_metrics()
NO_GAIN = "on select the choice is no better than the baseline in "


@pytest.mark.parametrize("others", sample([((),), (("mce",),)], 1))
@pytest.mark.parametrize("metric", sample(ON_SELECT, 6))
@pytest.mark.parametrize(("baseline", "tried"), [(0.3, 0.2), (0.2, 0.3), (0.3, 0.3)])
def test_a_choice_without_a_gain_is_reported_for_every_metric(metric, others, baseline, tried):
    metrics = (metric, *(name for name in others if name != metric))
    values = dict.fromkeys(metrics, baseline), dict.fromkeys(metrics, tried)
    text = "\n".join(describe_no_gain(metrics, *values))
    is_gain = tried < baseline if METRICS[metric].is_less_better else tried > baseline
    assert (f"{NO_GAIN}{METRICS[metric].title}: " in text) != is_gain
    assert (f"{NO_GAIN}MCE: " in text) == ("mce" in metrics and tried >= baseline)
    if not is_gain and METRICS[metric].unit == "fraction":
        assert f"{100 * tried:.2f} % against {100 * baseline:.2f} %" in text


@pytest.mark.parametrize(
    ("eces", "is_gain"), [([0.07, 0.09], True), ([0.09, 0.1], False), ([0.08, 0.3], False)]
)
def test_the_page_and_the_printed_report_mention_a_choice_without_gain(tmp_path, eces, is_gain):
    fake_results.write_search(tmp_path, POINTS[:2], eces)
    assert load_search(tmp_path).outcome.chosen == 0
    text = write_search_report(tmp_path)
    for content in (text, (tmp_path / "report.html").read_text()):
        assert (NO_GAIN in content) != is_gain
        assert BASELINE_AT_CHANCE not in content


FLAGS = [None, "", "chance", "temperature_bound,chance", "temperature_bound"]


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("guard", [0.01, 0.5, 1.0])
def test_a_suggestion_at_chance_is_never_chosen(guard, flags):
    objective = Objective(("ece",), guard)
    fine = row(ece=0.1, accuracy=0.9)
    low = {**row(ece=0.01, accuracy=0.9 - guard), "flags": flags}
    standings = {
        number: objective.summarise([single], {0: 0.9}) for number, single in enumerate([fine, low])
    }
    is_chance = "chance" in (flags or "")
    assert objective.choose(standings) == (0 if is_chance else 1)
    assert (objective.excess(standings[1]) > 0) == is_chance
    assert objective.find_front({1: standings[1]}) == ([] if is_chance else [1])


@pytest.mark.parametrize("flags", FLAGS)
def test_a_baseline_at_chance_is_reported(tmp_path, flags):
    is_chance = "chance" in (flags or "")
    fake_results.write_search(tmp_path / "page", POINTS[:1], [0.07])
    search = load_search(tmp_path / "page")
    search.trials.loc[len(search.trials)] = {"spec_hash": "b", "rung": -1}
    search.trials["flags"] = [None] * (len(search.trials) - 1) + [flags]
    assert (search.warnings() == [BASELINE_AT_CHANCE]) == is_chance


CHOICE = {"version": 1, "trial": 3, "settings": {"head.lr": 0.1}, "rule": "best"}


def read(out, seeds, extend=False, choice=CHOICE):
    test_read = ReadRecord(seeds=seeds, command=f"evaluate --seeds {seeds}")
    record = add_read(SearchEvaluated(**choice), out, test_read, extend)
    record.write(out)
    return [read.seeds for read in record.reads]


@pytest.mark.parametrize("extend", [False, True])
@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_repeated_evaluations_on_test_are_recorded(tmp_path, seeds, extend):
    assert read(tmp_path, 2) == [2]
    if seeds == 2:
        assert read(tmp_path, 2, extend) == [2]
    elif seeds == 3 and extend:
        assert read(tmp_path, 3, extend) == [2, 3]
        assert read(tmp_path, 3) == [2, 3]
        with pytest.raises(UserError, match="2 times: with 2 fresh seeds, then 3 fresh seeds"):
            read(tmp_path, 2, extend)
    else:
        with pytest.raises(UserError, match=r"read once, with 2 fresh seeds.*`seeds` 2") as error:
            read(tmp_path, seeds, extend)
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="the choice is now trial 4"):
        read(tmp_path, 2, extend, {**CHOICE, "trial": 4})


@pytest.mark.parametrize("gap", [0.05, -0.05])
@pytest.mark.parametrize("metric", ON_SELECT)
def test_optimism_is_positive_where_select_looked_better(tmp_path, metric, gap):
    """Whether a larger or a smaller value is better; and a choice that is no gain is told."""
    sign = 1 if METRICS[metric].is_less_better else -1
    values = {"baseline": 0.4 - sign * 0.1, "defaults": 0.4, "chosen": 0.4}
    accuracies = {"select/accuracy": 0.7, "test/accuracy": 0.7}
    fresh, searched_rows = [], {}
    for label, value in values.items():
        numbers = {f"select/{metric}": 0.43, f"test/{metric}": value + sign * gap}
        fresh.append({"rung_label": label, "status": "done", **accuracies, **numbers})
        searched_rows[label] = [{"status": "done", **accuracies, f"select/{metric}": value}]
    table = optimism(fresh, searched_rows, (metric,))
    title = METRICS[metric].title
    chosen = next(line for line in body(table).splitlines() if "chosen" in line and title in line)
    assert chosen.strip("| ").endswith(f" {format_value(metric, gap)}")


@pytest.mark.parametrize(
    ("networks", "heads", "fresh"), [((0, 1), (0, 1), 2), ((0,), (0, 1, 6), 7), ((4,), (0,), 5)]
)
def test_the_seeds_of_an_evaluation_are_new_to_networks_and_heads(networks, heads, fresh, tmp_path):
    seeds = Seeds(networks, heads, is_paired=networks == heads)
    question = replace(definition_of("mac_cal"), resolved=ResolvedRequest(GIVEN, seeds))
    search = replace(any_job(tmp_path / "out"), definition=question)
    choice = SearchEvaluated(**CHOICE, reads=[ReadRecord(seeds=2, command="it")])
    request = EvaluateRequest(out=str(tmp_path / "out"), seeds=2)
    chosen_seeds = build_run(search, choice, request, "it").resolved.seeds
    assert chosen_seeds == Seeds((fresh, fresh + 1), (fresh, fresh + 1), is_paired=True)
