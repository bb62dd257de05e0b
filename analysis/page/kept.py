"""What a report was made of: the same again is told at once, and only what changed is drawn."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.figure import Figure
from analysis.tables.render import from_plain, to_plain
from tune_calib.console import Text
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import Place
from tune_calib.results import contents
from tune_calib.results.columns import COLUMNS
from tune_calib.results.manifests import VERSION, DrawnRecord, ReportRecord


@dataclass(frozen=True)
class Basis:
    """What a report is made of.

    Attributes:
        results: SHA-256 of every file of results; None where that is not known.
        program: digest of what makes the report; None where that is not known.
        options: of the report, as far as figures show them.
        further: those that only its texts show.
    """

    results: Mapping[str, str] | None
    program: str | None
    options: Sequence[str] = ()
    further: Sequence[str] = ()

    @property
    def digest(self) -> str | None:
        """Of all of it."""
        return self._digest(self.results, *self.further)

    def of_figure(self, figure: Figure[Any]) -> str | None:
        """Digest of what a figure shows; None where nobody knows what it is drawn from."""
        # What a user's own figure reads beside the results is not known.
        if self.results is None or not figure.draw.__module__.startswith("analysis."):
            return None
        if figure.tables is None:
            return self._digest(self.results, figure.name)
        others = set(COLUMNS) - {"trials", "shifts", *figure.tables}
        read = {n: own for n, own in self.results.items() if n.split("/")[0] not in others}
        return self._digest(read, figure.name)

    def _digest(self, results: Mapping[str, str] | None, *more: str) -> str | None:
        if results is None or self.program is None:
            return None
        told = [sorted(results.items()), list(self.options), list(more)]
        return contents.of_texts(self.program, json.dumps(told))


def basis_of(out: Place, options: Sequence[str], further: Sequence[str] = ()) -> Basis:
    """What a report of a folder is made of; asked for before any of it is read.

    Args:
        out: the folder.
        options: of the report, as far as figures show them.
        further: those that only its texts show.
    """
    return Basis(contents.of_folder(out), contents.of_program(), options, [str(out), *further])


@dataclass(frozen=True)
class Kept:
    """A report that lies in a folder, and what the next one is made of.

    Attributes:
        folder: of both.
        basis: of the next one.
        record: of the one that lies there; None if there is none.
    """

    folder: Path
    basis: Basis
    record: ReportRecord | None = None

    @property
    def text(self) -> Text | None:
        """What was printed, if the report is whole and would be the same again."""
        if self.record is None or self.basis.digest != self.record.made_of:
            return None
        return from_plain(self.record.text) if self._are_whole(self.record.files) else None

    def holds(self, figure: Figure[Any], paths: Sequence[Path]) -> bool:
        """Whether the files of a figure are whole and would be the same again."""
        drawn = self.record.figures.get(figure.name) if self.record else None
        if drawn is None or drawn.made_of != self.basis.of_figure(figure):
            return False
        return set(drawn.files) == set(self._names(paths)) and self._are_whole(drawn.files)

    def _names(self, paths: Iterable[Path]) -> list[str]:
        return [path.relative_to(self.folder).as_posix() for path in paths]

    def _are_whole(self, files: Mapping[str, str]) -> bool:
        return all(own and contents.of_file(self.folder / n) == own for n, own in files.items())

    def write(
        self, text: Text, files: Sequence[str], drawn: Mapping[Figure[Any], Sequence[Path]]
    ) -> None:
        """Keep what the report that was made now is made of.

        Args:
            text: what is printed.
            files: names of all its files.
            drawn: files of each figure.
        """
        made_of = self.basis.digest
        if made_of is None:
            return
        whole = {name: contents.of_file(self.folder / name) for name in files}
        figures = {
            figure.name: DrawnRecord(made_of=own, files={n: whole[n] for n in self._names(paths)})
            for figure, paths in drawn.items()
            if (own := self.basis.of_figure(figure)) is not None
        }
        record = ReportRecord(
            version=VERSION, made_of=made_of, text=to_plain(text), files=whole, figures=figures
        )
        record.write(self.folder)


def kept(folder: Path, basis: Basis) -> Kept:
    """The report that lies in a folder; one that cannot be read is none."""
    try:
        return Kept(folder, basis, ReportRecord.read(folder))
    except (OSError, DamagedFileError, UserError):
        return Kept(folder, basis)
