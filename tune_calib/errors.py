"""Errors that a user can cause: each is one line that says what is wrong and how to mend it."""


class UserError(Exception):
    """A mistake in what the user gave; the command line prints it as one line and exits with 2."""


class DataNotFoundError(UserError):
    """A data root does not hold the data set that was asked for."""


class DamagedFileError(UserError):
    """A file is half-written, foreign or does not match its checksum."""


class DivergedError(Exception):
    """Training produced a non-finite loss; the trial ends with status `diverged`."""
