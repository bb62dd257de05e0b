"""Metrics that are computed only if asked for: each module of this package is a plug-in."""

from importlib.util import find_spec

from tune_calib.errors import UserError


def require_library(name: str) -> None:
    """Refuse a plug-in without its library, which is imported only when it is used."""
    if find_spec(name) is None:
        raise UserError(f"needs another library: pip install {name}")
