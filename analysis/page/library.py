"""The library that draws interactive figures, as a page holds it: packed, and fetched from nowhere.

Plotly.js (https://plotly.com/javascript, MIT licence) comes with the Python package ``plotly``,
whose code is not used.
"""

import base64
import gzip
import hashlib
from functools import cache
from importlib.resources import files


@cache
def plotly_js() -> str:
    """``plotly.min.js``, packed by gzip and written in base 64: two megabytes, not five."""
    # No time in the header: the same results give the same page.
    return base64.b64encode(gzip.compress(_script(), mtime=0)).decode()


@cache
def plotly_digest() -> str:
    """Return the SHA-256 of ``plotly.min.js`` in base 64, by which a page allows it to run."""
    return base64.b64encode(hashlib.sha256(_script()).digest()).decode()


def _script() -> bytes:
    return (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
