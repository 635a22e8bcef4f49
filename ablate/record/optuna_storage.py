"""The ledger: which trials are planned and how each ended, in Optuna's storage. The only file importing optuna.

Only the driver writes. A trial is claimed by its storage id, not by `study.ask()`, because the plan's
order, not the order of insertion, says what runs next.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablate.errors import StudyError
from ablate.plan.model import Plan, PlannedTrial
from ablate.record.foreign_records import fault_of, shortened
from ablate.record.history import decode_metrics, encode_metrics, read_history
from ablate.record.kept_outcomes import KeptOutcome, keep_outcome, kept_outcome
from ablate.record.lease import Lease
from ablate.record.optuna_entries import AT_ONCE, count_trials, enter_waiting
from ablate.record.optuna_stores import open_storage
from ablate.record.run_folder import RunFolder
from ablate.spec.models import Factor

FINISHED_STATES = frozenset({"COMPLETE", "PRUNED", "FAIL"})


@dataclass(frozen=True)
class Outcome:
    """How a trial ended.

    Attributes:
        state: `COMPLETE | PRUNED | FAIL`.
        reason: of FAIL: `diverged | exception | died | timeout | missing_metric`; else "".
        value: of the primary metric, or None.
        metrics: final value of each metric.
        error: text of the error, or "".
    """

    state: str
    reason: str = ""
    value: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class LedgerTrial:
    """One attempt at a planned trial, as the ledger has it."""

    storage_id: int
    number: int
    trial_id: str
    attempt: int
    state: str
    attributes: Mapping[str, Any]
    started: datetime | None
    ended: datetime | None

    @property
    def finished(self) -> bool:
        """Whether the ledger counts it as ended."""
        return self.state in FINISHED_STATES

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, as noted just before the stores were told; None while it has not."""
        noted = self.attributes.get("outcome")
        if noted is None:
            return None
        return Outcome(
            state=noted["state"],
            reason=noted["reason"],
            value=None if noted["value"] is None else float(noted["value"]),
            metrics=decode_metrics(self.attributes.get("metrics", {})),
            error=noted["error"],
        )


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


class Ledger:
    """The trials of one study in Optuna's storage."""

    def __init__(
        self, storage: Any, study: optuna.Study, folder: Path, warn: Callable[[str], None] = lambda _text: None
    ) -> None:
        self._folder = RunFolder(folder)
        self._warn = warn
        self._storage = storage
        self._study = study
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._claimed: dict[int, LedgerTrial] = {}  # as this process, the only one that writes, left them

    @staticmethod
    def create(
        url: str | None, folder: Path, study: str, goal: str, warn: Callable[[str], None] = lambda _text: None
    ) -> Ledger:
        """The ledger of a study, made where it is not there yet. `warn` is told when its store does not answer.

        Raises: StudyError where the folder's own database holds another study instead: it was renamed, and a new
            one beside it would run everything again.
        """
        storage = open_storage(url, folder, warn)
        names = optuna.get_all_study_names(storage) if url is None else []
        if names and study not in names:
            storage.remove_session()
            raise StudyError(f"{folder / 'optuna.db'} holds {', '.join(sorted(names))}, not {study}; rename it back")
        made = optuna.create_study(storage=storage, study_name=study, direction=goal, load_if_exists=True)
        return Ledger(storage, made, folder, warn)

    @staticmethod
    def find(url: str | None, folder: Path, study: str) -> Ledger | None:
        """The ledger of a study for reading, or None; makes no file and no study."""
        if url is None and not _has_content(folder / "optuna.db"):
            return None
        storage = open_storage(url, folder)
        try:
            return Ledger(storage, optuna.load_study(study_name=study, storage=storage), folder)
        except KeyError:
            storage.remove_session()
            return None

    @property
    def storage(self) -> Any:
        """Optuna's storage, which holds the searches of the study as well."""
        return self._storage

    @property
    def goal(self) -> str:
        """The direction that the stored study has, which may not be the file's any more."""
        return str(self._study.direction.name).lower()

    @contextlib.contextmanager
    def leased(
        self, folder: Path, say: Callable[[str], None], lost: Callable[[str], None], pause: Callable[[float], None]
    ) -> Iterator[None]:
        """Hold the study in its store, against processes with other run folders; writing needs the lease from then on.

        Args:
            folder: the run folder.
            say: is told that the claim of another is watched.
            lost: is told when another process has taken the study.
            pause: sleeps so many seconds.
        Raises: StudyError naming the process that holds it.
        """
        lease = Lease(self._storage.engine, self._study_id, folder, say=say, sleep=pause)
        self._storage.call(lease.acquire)
        with lease.held(lost):
            self._storage.guard = lease.hold
            try:
                yield
            finally:
                self._storage.guard = lambda: None

    def close(self) -> None:
        """Let go of the database."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    # --- reading ---

    def attempts(self) -> list[LedgerTrial]:
        """Every attempt at every trial that the ledger has, oldest first; what others wrote there is left aside."""
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        return [_ledger_trial(trial) for trial in trials if fault_of(trial.user_attrs) is None]

    def foreign(self) -> list[str]:
        """What stands in the study under the names of a trial of ours and is none, each with the reason."""
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        named = (trial for trial in trials if "trial_id" in trial.user_attrs)
        faults = ((trial.number, fault_of(trial.user_attrs)) for trial in named)
        return [f"trial {number} in the store is left aside: {fault}" for number, fault in faults if fault is not None]

    def latest(self) -> dict[str, LedgerTrial]:
        """The highest attempt of each trial, by trial_id."""
        latest: dict[str, LedgerTrial] = {}
        for trial in self.attempts():
            known = latest.get(trial.trial_id)
            if known is None or trial.attempt > known.attempt:
                latest[trial.trial_id] = trial
        return latest

    def get(self, trial: LedgerTrial) -> LedgerTrial:
        """The same attempt as it stands now; of one that this process has claimed the store need not be asked."""
        known = self._claimed.get(trial.storage_id)
        return _ledger_trial(self._storage.get_trial(trial.storage_id)) if known is None else known

    def study_note(self, name: str, default: Any = None) -> Any:
        """A fact about the whole study; the default also where what stands there has another type."""
        found = self._study.user_attrs.get(name, default)
        return found if default is None or isinstance(found, type(default)) else default

    # --- writing ---

    def set_study_note(self, name: str, value: Any) -> None:
        """Keep a fact about the whole study (a JSON value)."""
        self._study.set_user_attr(name, value)

    def add(self, trials: Iterable[PlannedTrial], plan: Plan, attempt: int = 1) -> int:
        """Enter trials as WAITING; those that had ended, as their folders have it, as they ended.

        The latter happens where the store came back empty or was left behind. Returns: how many.
        """
        ranges = _observed_ranges(plan)
        count = restored = 0
        entries: list[FrozenTrial] = []
        for trial in trials:
            params, distributions, attributes = _parameters(trial, plan, ranges)
            attributes |= {
                "trial_id": trial.trial_id,
                "arm": trial.arm.label,
                "seed": trial.seed,
                "replicate": trial.arm.replicate,
                "designs": ",".join(trial.arm.designs),
                "attempt": attempt,
            }
            waiting = create_trial(
                state=TrialState.WAITING, params=params, distributions=distributions, user_attrs=attributes
            )
            kept = kept_outcome(self._folder.trial(trial.trial_id), trial.trial_id) if attempt == 1 else None
            entries.append(waiting if kept is None else self._ended(waiting, kept, plan))
            restored += kept is not None
            count += 1
        self._enter(entries)
        if restored:
            self._warn(
                f"{restored} trials that had ended were missing from the ledger; it is filled in from their folders"
            )
        return count

    def _enter(self, entries: Sequence[FrozenTrial]) -> None:
        """In their order; the waiting ones, which are most, many at a time."""
        engine = self._storage.engine
        for state, run in itertools.groupby(entries, lambda entry: entry.state):
            if state is not TrialState.WAITING:
                for ended in run:
                    self._study.add_trial(ended)
                continue
            waiting = list(run)
            known = self._storage.call(functools.partial(count_trials, engine, self._study_id))
            for start in range(0, len(waiting), AT_ONCE):
                part = waiting[start : start + AT_ONCE]
                self._storage.write(functools.partial(enter_waiting, engine, self._study_id, part, known + start))

    def _ended(self, trial: FrozenTrial, kept: KeptOutcome, plan: Plan) -> FrozenTrial:
        """The trial as it ended, by what is kept in its folder."""
        primary = plan.spec.metrics.primary.name
        rows = read_history(self._folder.history(trial.user_attrs["trial_id"]))
        values = {row.step: row.metrics[primary] for row in rows if primary in row.metrics}
        value = kept.attributes["outcome"]["value"]
        ended = create_trial(
            state=TrialState[kept.state],
            value=float(value) if kept.state != "FAIL" and value is not None else None,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={**kept.attributes, **trial.user_attrs, "attempt": kept.attempt},
            intermediate_values={step: value for step, value in values.items() if math.isfinite(value)},
        )
        ended.datetime_start, ended.datetime_complete = kept.started or kept.ended, kept.ended
        return ended

    def claim(self, trial: LedgerTrial) -> bool:
        """Make a waiting trial RUNNING. Returns: whether it was waiting."""
        claimed = bool(self._storage.set_trial_state_values(trial.storage_id, state=TrialState.RUNNING))
        if claimed:
            self._claimed[trial.storage_id] = self.get(trial)
        return claimed

    def release(self, trial: LedgerTrial) -> None:
        """Put a running trial back to WAITING; what it has done is kept in its folder."""
        self._claimed.pop(trial.storage_id, None)
        self._storage.set_trial_state_values(trial.storage_id, state=TrialState.WAITING)

    def note(self, trial: LedgerTrial, name: str, value: Any) -> None:
        """Keep a fact about an unfinished trial (a JSON value)."""
        self._storage.set_trial_user_attr(trial.storage_id, name, value)
        known = self._claimed.get(trial.storage_id)
        if known is not None:
            noted = {**known.attributes, name: json.loads(json.dumps(value))}
            self._claimed[trial.storage_id] = replace(known, attributes=noted)

    def report(self, trial: LedgerTrial, step: int, value: float) -> None:
        """Note the primary metric at an evaluation point."""
        if math.isfinite(value):  # the dashboard cannot draw the others; the history has them
            self._storage.set_trial_intermediate_value(trial.storage_id, step, float(value))

    def note_outcome(self, trial: LedgerTrial, outcome: Outcome) -> None:
        """Note how a trial ended, before any store calls it finished, so that a kill in between loses nothing."""
        self.note(trial, "metrics", encode_metrics(outcome.metrics))
        value = outcome.value
        noted = {
            "state": outcome.state,
            "reason": outcome.reason,
            "value": value if value is None or math.isfinite(value) else str(value),
            "error": shortened(outcome.error),
        }
        self.note(trial, "outcome", noted)

    def finish(self, trial: LedgerTrial, outcome: Outcome) -> None:
        """Call a trial finished: the last thing that is written of it, after its own folder says how it ended."""
        entry = self.get(trial)
        folder = self._folder.trial(trial.trial_id)
        folder.mkdir(parents=True, exist_ok=True)
        keep_outcome(folder, trial.trial_id, trial.attempt, entry.started, entry.attributes)
        self._claimed.pop(trial.storage_id, None)
        value = outcome.value
        stored = outcome.state != "FAIL" and value is not None and math.isfinite(value)
        self._storage.set_trial_state_values(
            trial.storage_id,
            state=TrialState[outcome.state],
            values=[float(value)] if stored and value is not None else None,
        )


def _ledger_trial(trial: FrozenTrial) -> LedgerTrial:
    return LedgerTrial(
        storage_id=trial._trial_id,  # noqa: SLF001 - the storage's own interface takes this id
        number=trial.number,
        trial_id=str(trial.user_attrs["trial_id"]),
        attempt=int(trial.user_attrs.get("attempt", 1)),
        state=trial.state.name,
        attributes=trial.user_attrs,
        started=trial.datetime_start,
        ended=trial.datetime_complete,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _observed_ranges(plan: Plan) -> dict[str, tuple[float, float] | None]:
    """Lowest and highest value of each factor over the arms; None where some value is no number."""
    ranges: dict[str, tuple[float, float] | None] = {}
    for factor in plan.spec.factors:
        values = [arm.factors[factor.path] for arm in plan.arms if factor.path in arm.factors]
        if factor.kind in ("float", "int"):
            values = [value for value in values if value is not None]  # weights that a simplex leaves open
        values += [bound for bound in (factor.low, factor.high) if bound is not None]
        numeric = bool(values) and all(map(_is_number, values))
        ranges[factor.path] = (float(min(values)), float(max(values))) if numeric else None
    return ranges


def _distribution(factor: Factor, value: Any, observed: tuple[float, float] | None) -> BaseDistribution | None:
    """How the ledger types a factor: by its configuration's type, so that values added later still fit."""
    if factor.kind == "choice":
        return CategoricalDistribution(factor.choices) if _storable(factor.choices, value) else None
    if observed is None or not _is_number(value):
        return None
    if factor.kind == "int":
        return IntDistribution(int(observed[0]), int(observed[1]))
    return FloatDistribution(observed[0], observed[1])


def _storable(choices: Sequence[Any], value: Any) -> bool:
    """Whether Optuna tells the choices apart: it merges True, 1 and 1.0, and keeps scalars alone."""
    scalars = all(choice is None or isinstance(choice, bool | int | float | str) for choice in choices)
    return scalars and len(set(choices)) == len(choices) and value in choices


def _parameters(
    trial: PlannedTrial, plan: Plan, ranges: Mapping[str, tuple[float, float] | None]
) -> tuple[dict[str, Any], dict[str, BaseDistribution], dict[str, Any]]:
    params: dict[str, Any] = {}
    distributions: dict[str, BaseDistribution] = {}
    attributes: dict[str, Any] = {}
    for factor in plan.spec.factors:
        value = trial.arm.factors[factor.path]
        distribution = _distribution(factor, value, ranges[factor.path])
        if distribution is None:
            attributes[f"factor.{factor.path}"] = value
        else:
            params[factor.path] = float(value) if isinstance(distribution, FloatDistribution) else value
            distributions[factor.path] = distribution
    return params, distributions, attributes
