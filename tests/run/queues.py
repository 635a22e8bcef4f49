"""A trial queue beside a recorder that only remembers."""

from ablate.plan.model import Arm, PlannedTrial
from ablate.record.optuna_storage import LedgerTrial, Outcome
from ablate.run.stopping import StopRequest
from ablate.run.trial_queue import TrialQueue
from ablate.spec.models import Run
from ablate.workloads.contract import Row

OUT_OF_MEMORY = RuntimeError("out of memory\nmore")


class Remembering:
    """A recorder without stores."""

    def __init__(self, endings=()):
        self.running = ()
        self.released, self.failed, self.swept, self.deaths = [], [], [], {}
        self.printed = ""
        self._endings = dict(endings)

    def begin(self, trial, entry, notes):
        self.running += (trial.trial_id,)
        return True

    def last_row(self, trial_id):
        return Row(0, 0.0, {})

    def receive(self, message):
        if message.checkpoint_step is not None:
            return None
        self._leave(message.trial_id)
        return self._endings.get(message.trial_id, Outcome("COMPLETE", value=1.0))

    def fail(self, trial_id, reason, error):
        self._leave(trial_id)
        self.failed.append((trial_id, reason, error))
        return Outcome("FAIL", reason, error=error)

    def release(self, trial_id):
        self._leave(trial_id)
        self.released.append(trial_id)

    def prune(self, trial_id):
        self._leave(trial_id)
        return Outcome("PRUNED")

    def sweep(self, trial_id):
        self.swept.append(trial_id)

    def died(self, trial_id, why):
        self.deaths[trial_id] = self.deaths.get(trial_id, 0) + 1
        return self.deaths[trial_id]

    def recover_output(self, trial_id):
        return self.printed

    def attempt_of(self, trial_id):
        return 1

    def elapsed_s(self, trial_id):
        return 100.0

    def _leave(self, trial_id):
        self.running = tuple(name for name in self.running if name != trial_id)


class OneByOne(TrialQueue):
    """A queue that hands out single trials."""

    def next_assignment(self):
        return next(iter(self.next_assignments()), None)


class Silent:
    def __getattr__(self, name):
        return lambda *arguments: None


def trial(name):
    return PlannedTrial(name, Arm(name, {}, ("grid",), {}), 0)


def queue_of(names, run=None, recorder=None, packs=None, searches=None):
    """A queue of trials of these names, and what stops it."""
    entries = {name: LedgerTrial(1, 0, name, 1, "WAITING", {}, None, None) for name in names}
    stop = StopRequest()
    made = OneByOne(
        [trial(name) for name in names],
        entries=lambda: entries,
        recorder=recorder or Remembering(),
        assignment=lambda planned, attempt, row: planned.trial_id,
        notes=lambda planned: {},
        run=run or Run(),
        progress=Silent(),
        stop=stop,
        packs=packs,
        searches=searches,
    )
    return made, stop
