"""The slots of a trial spec: a file each, on what they share."""
