"""Metrics that are computed only if asked for: each module is a plug-in."""
