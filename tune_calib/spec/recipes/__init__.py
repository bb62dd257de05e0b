"""Recipes by name, a module each; what they are stands in ``tune_calib.spec.recipe``."""
