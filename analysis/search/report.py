"""The report of a search: made of what its folder holds, told again where nothing changed."""

from analysis.page.kept import basis_of, kept
from tune_calib.paths import Place, folder_to_fill


def write_search_report(out: Place) -> str:
    """Write ``tables/``, ``figures/`` and ``report.html`` of a search; what is the same stays.

    Args:
        out: its folder.

    Returns:
        What to print: the best suggestions, what failed or is missing, the files written.

    Raises:
        UserError: the folder holds no search or no result, or a file of it is damaged.
    """
    basis = basis_of(out, [])
    with folder_to_fill(out) as folder:
        before = kept(folder, basis)
        if before.text is not None:
            return before.text
        # Only now: it loads what the same report again does not need.
        from analysis.search.files import write_files

        return write_files(out, before)
