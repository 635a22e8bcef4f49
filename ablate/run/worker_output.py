"""What a worker process prints while trials run, in a file that outlives a crash."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


class Output:
    """The file that holds what the process prints; of a pack it goes by the name of each of its trials.

    Such names are hard links: a trial that has ended takes its own away and leaves the others theirs. Where a file
    system has none, the first alone has the file.
    """

    def __init__(self, path: Path, *others: Path) -> None:
        self._paths = (path, *others)
        for name in self._paths:
            name.parent.mkdir(parents=True, exist_ok=True)
            name.unlink(missing_ok=True)  # the file of a pack before it may still be another trial's
        self._file = -1
        self._given = 0

    @contextlib.contextmanager
    def captured(self) -> Iterator[None]:
        """Have everything printed go to the file, by C code too, while the context lasts."""
        first, *others = self._paths
        with first.open("w+b") as file:
            for name in others:
                with contextlib.suppress(OSError):
                    os.link(first, name)
            self._file = file.fileno()
            saved = os.dup(1), os.dup(2)
            _flush()
            os.dup2(self._file, 1)
            os.dup2(self._file, 2)
            try:
                yield
            finally:
                _flush()
                os.dup2(saved[0], 1)
                os.dup2(saved[1], 2)
                os.close(saved[0])
                os.close(saved[1])

    def unsent(self) -> tuple[str, int]:
        """New text, and how many bytes of the file have been handed out with it."""
        _flush()
        new = b""
        if (size := os.fstat(self._file).st_size) > self._given:
            new = os.pread(self._file, size - self._given, self._given)
        self._given += len(new)
        return new.decode("utf-8", errors="replace"), self._given


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


class SharedOutput:
    """Whose output it is that the trials of a pack print: of the one whose turn it is; else of all that are there."""

    def __init__(self, output: Output, trial_ids: Sequence[str]) -> None:
        self._output = output
        self._texts: dict[str, list[str]] = {trial_id: [] for trial_id in trial_ids}
        self._bytes = 0
        self._turn = ""

    def begin_turn(self, trial_id: str) -> str:
        """From here on it is this trial's; "": everybody's. Returns: whose it was."""
        self._deal()
        before, self._turn = self._turn, trial_id
        return before

    def unsent(self, trial_id: str) -> tuple[str, int]:
        """A trial's new text, and how many bytes of the file have been handed out with it."""
        self._deal()
        text = "".join(self._texts[trial_id])
        self._texts[trial_id].clear()
        return text, self._bytes

    def leave(self, trial_id: str) -> None:
        """Nothing more is this trial's."""
        self._deal()
        del self._texts[trial_id]

    def _deal(self) -> None:
        text, self._bytes = self._output.unsent()
        if text:
            for trial_id in [self._turn] if self._turn in self._texts else self._texts:
                self._texts[trial_id].append(text)
