"""The worker's side of a pack: trials that one process trains together, each an own trial to the driver.

Knows no Ray: `send` is all that it has of the driver.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from ablate.run.assignment import Assignment, Ending, Message
from ablate.run.outbox import LONGEST_WAIT_S, Outbox
from ablate.run.worker import (
    failed_ending,
    good_ending,
    put_on_import_path,
    report_final,
    run_trial,
    seed_global_streams,
    time_limit,
    trial_of,
)
from ablate.run.worker_output import Output, SharedOutput
from ablate.workloads import load_object
from ablate.workloads.contract import Metrics, PackMember, Row, Trial, TrialStopped

#: Hands messages to the driver, several at once. Returns: the trials that are to end.
SendAll = Callable[[Sequence[Message]], Collection[str]]


def run_trials(assignments: Sequence[Assignment], device: str, send: SendAll) -> None:
    """Run the trials of one process to their ends: one alone, several as a pack; only the process's death escapes.

    Args:
        assignments: at least one; several name the same pack function.
        device: `cpu` or `cuda`.
        send: hands messages to the driver. Returns: the trials that are to end.
    """
    if len(assignments) > 1:
        run_pack(assignments, device, send)
        return

    def send_one(message: Message) -> None:
        if send([message]):
            raise TrialStopped

    run_trial(assignments[0], device, send_one)


def run_pack(assignments: Sequence[Assignment], device: str, send: SendAll) -> None:
    """Run trials together. Those that the pack function leaves without an end are sent back, to be trained alone."""
    output = Output(*(Path(assignment.output_file) for assignment in assignments))
    with output.captured(), time_limit() as limit, _Pack(assignments, device, output, send, limit) as pack:
        why = "its function returned before they had ended"
        try:
            put_on_import_path(assignments[0])
            seed_global_streams(pack.members[0].trial)
            load_object(assignments[0].pack)([member.as_pack_member() for member in pack.members])
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whoever is to blame is found out by training them alone
            if not isinstance(error, TrialStopped):
                traceback.print_exc()
            why = f"{type(error).__name__}: {error}"
        pack.send_back(why)


class _Post:
    """Gathers what the members send, and hands it over once all have reported, one reports again, or some have ended.

    Ends that come in a row go together: they wait for a turn to begin or end, a report, or the end of the pack.
    """

    def __init__(self, send: SendAll, live: Mapping[str, object]) -> None:
        self._send = send
        self._live = live
        self._waiting: list[Message] = []
        self._since = 0.0
        self._have_ended = False
        self.leaving: set[str] = set()

    def __call__(self, message: Message) -> None:
        """Take a message of a member.

        Raises: TrialStopped when it is to end.
        """
        reported = {waiting.trial_id for waiting in self._waiting if waiting.rows}
        if message.rows and message.ending is None and message.trial_id in reported:
            self.hand_over()
            reported = set()
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(message)
        if message.ending is not None:
            self._have_ended = True
        elif self._have_ended or (message.rows and reported | {message.trial_id} >= set(self._live)):
            self.hand_over()
        if message.trial_id in self.leaving and message.ending is None:
            raise TrialStopped

    def hand_over(self, *, after_s: float = 0.0) -> None:
        """Send what has waited for so long."""
        if self._waiting and time.monotonic() - self._since >= after_s:
            messages, self._waiting, self._have_ended = self._waiting, [], False
            self.leaving |= set(self._send(messages))

    def hand_over_ends(self) -> None:
        """Send all that waits, where some have ended."""
        if self._have_ended:
            self.hand_over()


@dataclass
class _Clock:
    """What each member has used of its time: its own turns, and an equal share of what is no one's turn."""

    limits: dict[str, float | None]
    limit: Callable[[float], None]
    used: dict[str, float] = field(default_factory=dict)
    turn: str = ""
    counted_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.used = dict.fromkeys(self.limits, 0.0)
        self._watch()

    def count(self) -> None:
        """Bring it up to now."""
        now = time.monotonic()
        passed, self.counted_at = now - self.counted_at, now
        whose = [self.turn] if self.turn in self.used else list(self.used)
        for trial_id in whose:
            self.used[trial_id] += passed / len(whose)

    def is_over(self, trial_id: str) -> bool:
        """Whether a member has used all of its time."""
        self.count()
        limit = self.limits[trial_id]
        return limit is not None and self.used[trial_id] >= limit

    def leave(self, trial_id: str) -> None:
        """A member uses no more."""
        self.count()
        del self.used[trial_id]
        self._watch()

    def _watch(self) -> None:
        """Give the process what the members that are there have left together: past that, one of them hangs."""
        limits = {name: limit for name in self.used if (limit := self.limits[name]) is not None}
        if limits:  # once more the longest, so that one that still reports is ended by its own report
            self.limit(sum(max(limit - self.used[name], 0.0) for name, limit in limits.items()) + max(limits.values()))


class _Pack:
    """The trials of one process."""

    def __init__(
        self,
        assignments: Sequence[Assignment],
        device: str,
        output: Output,
        send: SendAll,
        limit: Callable[[float], None],
    ) -> None:
        names = [assignment.trial_id for assignment in assignments]
        self._output = SharedOutput(output, names)
        self._clock = _Clock({assignment.trial_id: assignment.timeout_s for assignment in assignments}, limit)
        self._live: dict[str, _Member] = {}
        self.post = _Post(send, self._live)
        self.members = [_Member(assignment, device, self) for assignment in assignments]
        self._live.update(zip(names, self.members, strict=True))

    def __enter__(self) -> _Pack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.outbox.close()

    @contextlib.contextmanager
    def turn(self, trial_id: str) -> Iterator[None]:
        """Work for one member alone while the context lasts."""
        self.post.hand_over_ends()
        before = self.begin_turn(trial_id)
        try:
            yield
        finally:
            self.begin_turn(before)
            self.post.hand_over_ends()

    def begin_turn(self, trial_id: str) -> str:
        """From here on work for this member; "": for all. Returns: for whom before."""
        self._clock.count()
        self._clock.turn = trial_id
        return self._output.begin_turn(trial_id)

    def unsent(self, trial_id: str) -> tuple[str, int]:
        """What a member has printed since it was last asked."""
        return self._output.unsent(trial_id)

    def is_over(self, trial_id: str) -> bool:
        """Whether a member has used all of its time."""
        return self._clock.is_over(trial_id)

    def leave(self, trial_id: str) -> None:
        """A member is no longer there."""
        del self._live[trial_id]
        self._output.leave(trial_id)
        self._clock.leave(trial_id)

    def send_back(self, why: str) -> None:
        """Send back those that have not ended, but for those that were asked to end; then all that waits."""
        for member in reversed(list(self._live.values())):  # each goes before all that wait
            if not member.is_to_leave:
                with contextlib.suppress(TrialStopped):
                    member.outbox.flush(apart=why)
        self.post.hand_over()


class _Member:
    """One trial of a pack."""

    def __init__(self, assignment: Assignment, device: str, pack: _Pack) -> None:
        self._assignment = assignment
        self._pack = pack
        self._trial_id = assignment.trial_id
        self._ending = False
        self.outbox = Outbox(assignment, lambda: pack.unsent(assignment.trial_id), pack.post)
        self.trial: Trial = trial_of(assignment, device, self.outbox)
        self.trial.on_report = self._report
        self.trial.on_checkpoint = self._checkpointed

    def as_pack_member(self) -> PackMember:
        """As the pack function gets it."""
        return PackMember(self._assignment.config, self.trial, self._end, lambda: self._pack.turn(self._trial_id))

    @property
    def is_to_leave(self) -> bool:
        """Whether the driver has asked it to."""
        return self._trial_id in self._pack.post.leaving

    def _report(self, row: Row) -> None:
        self.outbox.keep(row)  # before it is told to leave: it may save a checkpoint that is past this report
        if not self._ending:
            self._stay()
            self.outbox.send_where_due(row)
            self._pack.post.hand_over(after_s=LONGEST_WAIT_S)

    def _checkpointed(self, step: int) -> None:
        if not self._ending:
            self._stay()
            self.outbox.flush(checkpoint_step=step)

    def _stay(self) -> None:
        """See that it may go on.

        Raises: TrialStopped where it was asked to leave, or its time is up, which ends it.
        """
        if not self.outbox.stopped and self._pack.is_over(self._trial_id):
            self._leave(
                Ending("timeout", f"not finished after {self._assignment.timeout_s:g} s", notes=self.trial.notes)
            )
        if self.outbox.stopped or self.is_to_leave:
            self.outbox.stopped = True
            raise TrialStopped

    def _end(self, result: Metrics | Exception) -> None:
        if self._ending:
            return
        self._ending = True
        asked = self.outbox.stopped or self.is_to_leave
        if isinstance(result, TrialStopped) and asked:
            self._pack.leave(self._trial_id)
            return
        before = self._pack.begin_turn(self._trial_id)
        ending = self._ending_of(result)
        self._pack.begin_turn(before)
        self._leave(ending)

    def _ending_of(self, result: Metrics | Exception) -> Ending:
        try:
            if isinstance(result, Exception):
                raise result
            report_final(result, self.trial, self.outbox)
        except Exception as error:  # noqa: BLE001 - what the workload says of this member ends it alone
            return failed_ending(error, self.trial)
        return good_ending(self.trial, self.outbox)

    def _leave(self, ending: Ending) -> None:
        self._ending = True
        self.outbox.stopped = True
        self.outbox.flush(ending=ending)
        self._pack.leave(self._trial_id)
