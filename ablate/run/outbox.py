"""What a trial reports, on its way from the worker to the driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ablate.record.history import HistoryFile
from ablate.run.assignment import KEPT_REPORTS, Assignment, Ending, Message
from ablate.workloads.contract import Row, TrialStopped

#: Reports wait at most this long, so that a trial without evaluations is seen to move.
LONGEST_WAIT_S = 5.0

Send = Callable[[Message], None]


class Outbox:
    """Buffers the reports of one trial and sends them in few messages.

    Each report is also kept in a file at once: a checkpoint may be past reports that were never sent, or were sent to
    a driver that died, and a trial that goes on from it does not make them again.

    Args:
        unsent: what was printed since it was last asked, and how far into the output's file that is.
        send: raises TrialStopped when the trial is to end.
    """

    def __init__(self, assignment: Assignment, unsent: Callable[[], tuple[str, int]], send: Send) -> None:
        self._assignment = assignment
        self._unsent = unsent
        self._send = send
        self._rows: list[Row] = []
        self._sent_at = time.monotonic()
        self.stopped = False
        self.last_step = assignment.last_step
        self.last_row = dict(assignment.last_row)
        self._kept = HistoryFile(Path(assignment.output_file).with_name(KEPT_REPORTS))
        for row in self._kept.rows:
            if row.step >= assignment.last_step:
                self._take(row)

    def _take(self, row: Row) -> None:
        self._rows.append(row)
        if row.step != self.last_step:
            self.last_row = {}
        self.last_step = row.step
        self.last_row.update(row.metrics)

    def report(self, row: Row) -> None:
        """Keep a report; send it, and what waits, where it is due."""
        self.keep(row)
        self.send_where_due(row)

    def send_where_due(self, row: Row) -> None:
        """Send what waits where this is a report that the driver waits for, or the first one has waited long enough."""
        if self._assignment.flush_on in row.metrics or time.monotonic() - self._sent_at > LONGEST_WAIT_S:
            self.flush()

    def keep(self, row: Row) -> None:
        """Keep a report until something is sent."""
        self._kept.append([row])
        self._take(row)

    def close(self) -> None:
        """Send nothing more. What was sent is the driver's to keep on disk."""
        self._kept.close(sync=False)

    def flush(self, checkpoint_step: int | None = None, ending: Ending | None = None, apart: str = "") -> None:
        """Send what waits.

        Raises: TrialStopped when the trial is to end.
        """
        log, log_bytes = self._unsent()
        rows, self._rows = tuple(self._rows), []
        self._sent_at = time.monotonic()
        trial_id, attempt = self._assignment.trial_id, self._assignment.attempt
        try:
            self._send(Message(trial_id, attempt, rows, log, log_bytes, checkpoint_step, ending, apart))
        except TrialStopped:
            self.stopped = True
            raise
