"""What stands beside numbers is computed from the rows that they are of."""

import pandas as pd
import pytest

from analysis import style
from analysis.load import load
from analysis.report import write_report
from analysis.settings import by_rung
from tests import fake_results

RIVALS = ("base", "variant", "variant", "variant")


@pytest.fixture(autouse=True)
def one_format(monkeypatch):
    """Figures as SVG alone, since most of a report's time goes into the other formats."""
    monkeypatch.setattr(style, "FORMATS", ("svg",))


@pytest.mark.parametrize("kinds", [fake_results.KINDS, RIVALS])
@pytest.mark.parametrize("absent", [(1,), (0,), (1, 2), (3,), (0, 1, 2)])
def test_results_in_which_rungs_vanished_are_reported_under_their_own_labels(
    tmp_path, absent, kinds
):
    fake_results.write(tmp_path, absent=absent, kinds=kinds)
    told = write_report(tmp_path)
    gaps = [rung for rung in absent if rung < max({0, 1, 2, 3} - {*absent})]
    assert ("NOT THERE" in told) == bool(gaps)
    assert all(str(rung + 1) in told.split("NOT THERE")[1].split("of the")[0] for rung in gaps)
    sweep = load(tmp_path)
    set_to = by_rung(sweep.trials, sweep.labels).set_index(["setting", "value"])["rungs"]
    here = [rung for rung in (1, 2, 3) if rung not in absent]
    for rung in here:
        alone = here == [rung] and 0 in absent
        label = fake_results.LABELS[rung]
        assert set_to["head.gamma", str(0.1 * rung)] == ("all" if alone else label)
    intervals = pd.read_csv(tmp_path / "tables" / "intervals.csv")
    assert set(intervals["rung"]) == set(sweep.labels.values())
