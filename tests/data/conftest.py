from pathlib import Path

import pytest

from tests.data.archives import LAYOUTS


@pytest.fixture(scope="package")
def archives(tmp_path_factory):
    """Archives by data set and layout; each is made once and must not be changed."""
    made: dict[tuple[str, str], Path] = {}

    def of(layout: tuple[str, str]) -> Path:
        if layout not in made:
            made[layout] = LAYOUTS[layout](tmp_path_factory.mktemp("-".join(layout)))
        return made[layout]

    return of
