"""Every figure of a report: what it shows and how to read it."""


def every_figure() -> str:
    """A table of the figures."""
    return ""
