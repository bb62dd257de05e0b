"""Levels of FeDLaS's hyper-parameters around its published points, for the ladders that vary them.

The published point depends on the data set (alpha 0.05 or 0.1, beta 4, theta 0.95 or 0.5); a rung
without settings has it. No level equals one of these values, so that no two rungs are the same
trial on any data set.
"""

LEVELS = {
    "alpha": (0.01, 0.025, 0.15, 0.25),
    "beta": (1.0, 2.0, 8.0, 16.0),
    "theta": (0.1, 0.3, 0.7, 0.99),
}
