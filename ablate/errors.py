"""The two errors a user can cause; the command line prints them without a traceback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with a study file, placed where a reader finds it.

    `line` and `column` count from 1; 0 means that the problem has no place in the file.
    """

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class SpecError(Exception):
    """The study file, or a request made of it, is wrong (exit code 2). Carries every problem found."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = () if isinstance(problems, str) else tuple(problems)
        super().__init__(problems if isinstance(problems, str) else "\n".join(map(str, self.problems)))


class StudyError(Exception):
    """A study that is sound could not go on (exit code 1)."""


def first_line(error: BaseException) -> str:
    """What went wrong, without the statement that a database adds to it."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return str(cause).splitlines()[0] if str(cause) else type(cause).__name__
