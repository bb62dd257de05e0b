"""Text for a screen: as wide as it is, of whole words, and what is left out is said."""

import io
import random

import pytest
from rich.console import Console
from rich.live import Live

from analysis.ladder import tables
from analysis.load import load
from analysis.tables.table import Table, column_key
from analysis.text import Cell
from tune_calib.cli.options import chosen_screen
from tune_calib.console import WIDE, Prose, Screen, Text, echo, entries, shown, shown_on, terminal
from tune_calib.errors import UserError
from tune_calib.files.paths import parse_path

WIDTHS = [60, 80, 100, 120, 200]


@pytest.fixture(scope="module")
def ladder() -> Text:
    """The table of a real ladder, with a caption of many sentences."""
    return Text([tables.ladder(load(parse_path("analysis/example/ladder")))])


def random_table(seed: int) -> Table:
    chance = random.Random(seed)

    def words(most: int) -> str:
        return " ".join("x" * chance.randint(1, 9) for _ in range(chance.randint(1, most)))

    count = chance.randint(2, 12)
    heads = [f"h{number} {words(3)}" for number in range(count)]
    rows = [[words(12 if i % 3 == 1 else 2) for i in range(count)] for _ in range(4)]
    return table(heads, rows, first=chance.sample(heads, 2), rules={2: ""})


def table(heads, rows, **others) -> Table:
    records = [dict(zip(heads, map(Cell, row), strict=True)) for row in rows]
    return Table("key", "", records, **others)


def on(text: str, width: int | None, *columns: str) -> str:
    with shown_on(Screen(width, columns)):
        return shown(text)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", [*range(8), None])
def test_a_text_fits_the_screen_in_whole_words(width, seed, ladder):
    text = ladder if seed is None else Text([random_table(seed), Prose("a few words " * 20)])
    printed = on(text, width)
    assert max(map(len, printed.splitlines())) <= width
    # A head that is narrow does not break words either, and neither does the note.
    names = {column_key(head) for head in text.parts[0].heads}
    note = {"Not", "shown:", *names}
    note |= {"a", "wider", "window", "or", "pipe", "shows", "all"}
    words = note | {word.strip(",;.") for word in str(text).split()}
    assert {word.strip(",;.") for word in printed.split() if set(word) != {"-"}} <= words


def test_columns_are_chosen_by_name_whatever_the_width(ladder):
    for width in (None, 60):
        text = on(ladder, width, "NLL", "o_ece", "delta-ece-base", "trials")
        head = text.split("\n--")[0]
        assert "Not shown" not in text
        assert [word for word in ("NLL", "O-ECE", "ΔECE", "trials") if word in head] == [
            "NLL", "O-ECE", "ΔECE", "trials",
        ]  # fmt: skip
        assert "AECE" not in head
        assert head.startswith("rung")


def test_a_column_that_is_not_there_is_refused(ladder):
    with pytest.raises(UserError, match=r"no column 'nil'; did you mean 'nll'"):
        on(ladder, 80, "nil")


def test_the_hint_for_more_columns_names_an_existing_option(ladder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert terminal() == Screen(80)
    with shown_on(terminal()):
        assert "a wider window or a pipe shows all" in " ".join(shown(ladder).split())
    with shown_on(chosen_screen(None, is_wide=False)):
        assert "--wide shows all, --columns" in " ".join(shown(ladder).split())
    with pytest.raises(UserError, match="give one of them"):
        chosen_screen("ece", is_wide=True)
    monkeypatch.delenv("COLUMNS")
    assert terminal() == WIDE  # the tests have no terminal


def test_an_entry_has_a_line_for_each_key():
    with shown_on(Screen(40)):
        printed = entries({"name": "x", "defaults": "a=1, " * 20})
    assert max(map(len, printed.splitlines())) <= 40
    assert printed.splitlines()[0] == "name      x"
    assert all(line.startswith(" " * 10) for line in printed.splitlines()[2:])


@pytest.mark.parametrize("err", [False, True])
def test_a_text_is_printed_above_a_live_view(err, capfd):
    shown = Console(file=io.StringIO(), force_terminal=True)
    with Live("working", console=shown, auto_refresh=False):
        echo("a result", err)
    assert "a result\n" in shown.file.getvalue()
    assert "a result" not in "".join(capfd.readouterr())
