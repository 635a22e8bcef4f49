"""Stopping in order: Ctrl-C and SIGTERM once; a second one ends the process at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

INTERRUPTED = "interrupted"


class StopRequest:
    """Whether, and why, a study is to stop. The first reason counts."""

    def __init__(self) -> None:
        self.reason = ""

    def ask(self, reason: str) -> None:
        """Ask the study to stop."""
        self.reason = self.reason or reason

    def pause(self, seconds: float) -> None:
        """Sleep.

        Raises: KeyboardInterrupt where the study was interrupted.
        """
        time.sleep(seconds)
        if self.reason == INTERRUPTED:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def on_signals(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Take Ctrl-C and SIGTERM as requests to stop while the context lasts.

        Ray puts its own handler in place when it starts, so this is entered again after that.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(_number: int, _frame: Any) -> None:
            if self.reason == INTERRUPTED:
                os._exit(130)
            self.reason = INTERRUPTED
            tell("stopping: running trials are put back with their last checkpoint; once more ends at once")

        previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
