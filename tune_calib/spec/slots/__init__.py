"""The slots of a trial spec, and their bases."""
