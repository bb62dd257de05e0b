"""The slots of a trial spec: one file each, and their bases."""
