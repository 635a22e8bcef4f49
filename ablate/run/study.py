"""Runs a study: plans it, drops what is recorded as complete, runs the rest.

First run, resume after a crash and extension of a finished study are this one function.
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ablate.errors import SpecError, StudyError
from ablate.plan.collinear_groups import keep_groups, waits_for_groups, with_groups
from ablate.plan.geometry import gram_request
from ablate.plan.geometry_text import no_geometry
from ablate.plan.model import Plan, PlannedTrial
from ablate.plan.planning import Planner
from ablate.record.mlflow_tracking import Tracker, TrackingError
from ablate.record.optuna_search import search_results
from ablate.record.optuna_storage import Ledger, LedgerTrial
from ablate.record.run_folder import RunFolder, write_atomically
from ablate.run.assignment import Assignment
from ablate.run.changes import note_changes
from ablate.run.claim import needs_lease
from ablate.run.nodes import check_nodes
from ablate.run.packing import Measured, measure_in_worker, pack_key_of, pack_sizes, place_of
from ablate.run.packs import Packs
from ablate.run.preparation import check_references, measure_geometry, prepare_all
from ablate.run.progress import StudyProgress
from ablate.run.provenance import code_hash, git_state, hardware, versions
from ablate.run.ray_tune import Session, ray_session
from ablate.run.reconcile import reconcile
from ablate.run.recorder import Recorder
from ablate.run.searches import Searches, open_searches
from ablate.run.stopping import StopRequest
from ablate.run.summary import RunSummary, summarise
from ablate.run.trial_queue import TrialQueue
from ablate.spec.addresses import require_variables
from ablate.spec.dumping import dump_study
from ablate.spec.models import StudySpec
from ablate.workloads import find_workload, import_folders, import_path
from ablate.workloads.contract import Prepared, Row, Workload

#: A round that Ray gives up on is followed by another, as long as rounds finish something.
FRUITLESS_ROUNDS = 3


@dataclass(frozen=True)
class RunOptions:
    """What a caller may ask of a run beyond the study file.

    Attributes:
        runs: the folder of run folders.
        retry_failed: run failed trials again (diverged ones are results, and stay).
        on_new_code: what to do where finished trials ran with other code.
        accept_new_reference: go on where a reference table was made again with other bytes.
        arms: run only arms of these labels; all where empty.
    """

    runs: Path = Path("runs")
    retry_failed: bool = False
    on_new_code: Literal["ask", "keep_old", "rerun"] = "ask"
    accept_new_reference: bool = False
    arms: tuple[str, ...] = ()


def execute(spec: StudySpec, options: RunOptions, progress: StudyProgress) -> RunSummary:
    """Run what is left of a study.

    Raises: SpecError for a request that cannot be met, before anything is written; StudyError where the study
        cannot go on.
    """
    require_variables(spec)
    with import_path(spec.folder):
        workload = find_workload(spec.workload)
        spec = with_groups(spec, workload, options.runs / spec.study)
        planner = Planner(spec, workload)
        if not waits_for_groups(spec):
            _check_labels(planner.plan({}), options.arms)
        stop = StopRequest()
        with contextlib.ExitStack() as stack:
            stack.enter_context(stop.on_signals(progress.warn))
            session = None
            if needs_cluster_to_check(spec):
                session = stack.enter_context(ray_session(spec.run))
            folder = _make_folder(options.runs / spec.study, spec.run.storage)
            locked = stack.enter_context(folder.locked())
            try:
                if waits_for_groups(spec):
                    session = session or stack.enter_context(ray_session(spec.run))
                    spec = _measured_groups(spec, planner, workload, folder, session, stop, progress)
                    planner = Planner(spec, workload)
                    _check_labels(planner.plan({}), options.arms)
                keep_groups(spec, folder.path)
                study = _Execution(planner, spec, workload, folder, options, progress, stop)
                return study.run(session, stack, leased=needs_lease(spec, folder, locked, progress.warn))
            except OSError as error:
                raise StudyError(f"{folder.path}: {_first_line(error)}; nothing recorded so far is lost") from error


def _measured_groups(
    spec: StudySpec,
    planner: Planner,
    workload: Workload,
    folder: RunFolder,
    session: Session,
    stop: StopRequest,
    progress: StudyProgress,
) -> StudySpec:
    """The study with the groups of its designs, the reference of the baseline made first.

    Raises: SpecError where the workload has no term geometry; StudyError where making it fails.
    """
    plan = planner.plan({})
    request = gram_request(spec, plan.arms, workload)
    if request is None or workload.prepare is None:
        raise SpecError(no_geometry(spec.workload))
    progress.say("the groups of a design come from the reference table: it is made first")
    wanted, folders = {request.key: request.config}, import_folders(spec.folder)
    prepared = prepare_all(session, workload.prepare, wanted, folder.reference, folders, stop, progress)
    measure_geometry(plan, workload, prepared, folder.reference, session, folders)
    return with_groups(spec, workload, folder.path)


def needs_cluster_to_check(spec: StudySpec) -> bool:
    """Whether only a running cluster can tell if the resources asked for exist."""
    resources = spec.run.resources
    plain = spec.run.address is None and not resources.gpu and not resources.model_extra
    return not (plain and resources.cpu <= (os.cpu_count() or 1))


def _check_labels(plan: Plan, labels: Sequence[str]) -> None:
    known = [arm.label for arm in plan.arms]
    for label in labels:
        if label not in known:
            near = difflib.get_close_matches(label, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SpecError(f"--arm: got {label!r}; arms of this study: {', '.join(known)}{hint}")


def _make_folder(path: Path, storage: str | None) -> RunFolder:
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "artifacts").mkdir(exist_ok=True)
        probe = path / f".probe.{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise StudyError(
            f"{path} cannot be written: {error.strerror or error}; name another with --runs DIR"
        ) from error
    return RunFolder(path, None if storage is None else Path(storage))


class _Execution:
    """One run of one study, by the process that holds it."""

    def __init__(
        self,
        planner: Planner,
        spec: StudySpec,
        workload: Workload,
        folder: RunFolder,
        options: RunOptions,
        progress: StudyProgress,
        stop: StopRequest,
    ) -> None:
        self._planner = planner
        self._spec = spec
        self._workload = workload
        self._folder = folder
        self._options = options
        self._progress = progress
        self._stop = stop
        self._prepared: dict[str, Prepared] = {}
        source = spec.folder or "."
        sources = workload.sources
        self._provenance: dict[str, Any] = {
            "code_hash": spec.code_version or code_hash(sources),
            **{name: value for name, value in git_state(Path(source)).items() if name != "git_diff"},
            "torch": versions(["torch"]).get("torch", ""),
        }

    def run(self, session: Session | None, stack: contextlib.ExitStack, *, leased: bool) -> RunSummary:
        track = self._spec.track
        self._ledger = Ledger.create(
            track.optuna, self._folder.path, self._spec.study, self._spec.metrics.primary.goal, self._progress.warn
        )
        stack.callback(self._ledger.close)
        if leased:
            claim = self._ledger.leased(self._folder.path, self._progress.say, self._stop.ask, self._stop.pause)
            stack.enter_context(claim)
        self._tracker = Tracker(track.mlflow, self._folder.path, self._spec.study)
        self._plan = self._planner.plan(search_results(self._ledger, self._spec.study, self._planner.search_names()))
        self._note_study()
        self._reconcile()
        chosen = self._chosen()
        self._enter_trials(chosen)
        todo = self._todo(chosen)
        searching = bool(self._plan.pending) and not self._options.arms
        if (todo or searching) and not self._stop.reason:
            if session is None:
                self._progress.say("starting Ray")
                session = stack.enter_context(ray_session(self._spec.run))
            self._run_trials(todo, session)
        elif not (todo or searching):
            self._progress.say("every trial is recorded; nothing to run")
        latest = self._ledger.latest()
        chosen = self._chosen()
        finished = not self._plan.pending and all(
            trial.trial_id in latest and latest[trial.trial_id].finished for trial in self._plan.trials
        )
        with contextlib.suppress(TrackingError):
            self._tracker.end_study(finished)
        pending = 0 if self._options.arms else sum(part.trials for part in self._plan.pending)
        return summarise(
            self._spec.study,
            self._folder,
            chosen,
            latest,
            ran=len(todo) + int(searching),
            stopped=self._stop.reason,
            pending=pending,
        )

    def _chosen(self) -> list[PlannedTrial]:
        """The trials that this invocation is about."""
        labels = self._options.arms
        return [trial for trial in self._plan.trials if not labels or trial.arm.label in labels]

    # --- before the trials ---

    def _note_study(self) -> None:
        note_changes(self._folder, self._spec, self._ledger)
        write_atomically(self._folder.study_file, dump_study(self._spec))
        self._folder.write_settings(str(Path(self._spec.folder or ".").resolve()), self._plan.files)
        facts = dict(self._ledger.study_note("facts", {}))
        facts |= {"versions": versions(), "hardware": hardware()} | git_state(Path(self._spec.folder or "."))
        self._ledger.set_study_note("facts", {name: value for name, value in facts.items() if name != "git_diff"})
        tags = {f"ablate.{name}": str(value) for name, value in facts.items()}
        self._with_tracker(lambda: self._tracker.open_study({"mlflow.note.content": self._spec.question} | tags))

    def _with_tracker(self, action: Callable[[], object]) -> None:
        try:
            action()
        except TrackingError as error:
            self._progress.warn(
                f"MLflow does not answer ({error}); the study goes on, what is missing is filled in later"
            )

    def _reconcile(self) -> None:
        def mend() -> None:
            for finding in reconcile(self._folder, self._ledger, self._tracker):
                self._progress.warn(str(finding))

        self._with_tracker(mend)

    def _enter_trials(self, chosen: Sequence[PlannedTrial]) -> None:
        known = self._ledger.latest()
        self._ledger.add([trial for trial in self._plan.trials if trial.trial_id not in known], self._plan)
        latest = self._ledger.latest()
        self._check_code(chosen, latest)
        for trial in chosen:
            entry = latest.get(trial.trial_id)
            if entry is not None and entry.finished and self._again(entry):
                self._ledger.add([trial], self._plan, attempt=entry.attempt + 1)

    def _check_code(self, chosen: Sequence[PlannedTrial], latest: Mapping[str, LedgerTrial]) -> None:
        if self._options.on_new_code != "ask":
            return
        entries = [latest[trial.trial_id] for trial in chosen if trial.trial_id in latest]
        other = [entry for entry in entries if entry.state == "COMPLETE" and self._ran_other_code(entry)]
        if other:
            raise StudyError(
                f"{len(other)} finished trials of {self._spec.study} ran with other code than the present one "
                f"(code hash {_noted_code(other[0])}, now {self._provenance['code_hash']}); "
                "--keep-old keeps them beside new ones, --rerun runs them again"
            )

    def _ran_other_code(self, entry: LedgerTrial) -> bool:
        return _noted_code(entry) != str(self._provenance["code_hash"])

    def _again(self, entry: LedgerTrial) -> bool:
        if entry.state == "FAIL" and self._options.retry_failed:
            outcome = entry.outcome
            return outcome is None or outcome.reason != "diverged"
        return bool(self._options.on_new_code == "rerun") and self._ran_other_code(entry)

    def _todo(self, chosen: Iterable[PlannedTrial]) -> list[PlannedTrial]:
        latest = self._ledger.latest()
        return [trial for trial in chosen if not latest[trial.trial_id].finished]

    # --- the trials ---

    def _run_trials(self, todo: list[PlannedTrial], session: Session) -> None:
        recorder = Recorder(
            self._folder,
            self._ledger,
            self._tracker,
            self._spec.metrics.primary,
            keep_checkpoints=self._spec.run.keep == "last",
            warn=self._progress.warn,
        )
        searches = self._searches(session)
        pending = searches.pending if searches else 0
        with self._stop.on_signals(self._progress.warn):
            check_nodes(session, self._folder, self._workload.train, self._import_path())
            self._prepare(self._to_prepare(todo, searches), session)
            queue = TrialQueue(
                todo,
                entries=self._ledger.latest,
                recorder=recorder,
                assignment=self._assignment,
                notes=self._notes,
                run=self._spec.run,
                progress=self._progress,
                stop=self._stop,
                searches=searches,
                packs=self._packs(todo, session),
            )
            with self._progress.trials(len(self._chosen()) + pending, len(todo) + pending, session.slots()):
                try:
                    self._rounds(queue, session)
                finally:
                    self._plan = searches.plan if searches else self._plan
        if recorder.tracker_lags:
            self._reconcile()

    def _packs(self, todo: Sequence[PlannedTrial], session: Session) -> Packs:
        """What is trained together, measured where the file does not say how many."""
        if self._workload.pack is None:
            return Packs()
        key, size = pack_key_of(self._workload), self._spec.run.pack
        if size != "auto":
            return Packs(key, size)
        if self._workload.pack_costs is None or self._stop.reason:
            return Packs()
        folders, reference = self._import_path(), self._folder.reference
        where = place_of(hardware(), str(self._provenance["code_hash"]), self._spec.run, session.slots())
        measure = measure_in_worker(session, self._workload, reference, folders, where, self._stop, self._progress)
        facts = dict(self._ledger.study_note("facts", {}))
        known = {key: Measured.from_fact(fact) for key, fact in facts.get("packs", {}).items()}
        known = {key: measured for key, measured in known.items() if measured.where == where}
        sizes, found = pack_sizes(todo, self._workload, session.slots(), known, measure, self._progress.say)
        if found != known:
            facts["packs"] = {key: measured.to_fact() for key, measured in found.items()}
            self._ledger.set_study_note("facts", facts)
        return Packs(key, None, sizes, session.slots)

    def _searches(self, session: Session) -> Searches | None:
        """What is still to be proposed; None where nothing is, or where some arms alone were asked for."""
        if self._options.arms or not self._planner.search_names():
            return None
        return open_searches(self._spec, self._planner, self._plan, self._ledger, self._folder, session.slots())

    def _to_prepare(self, todo: Sequence[PlannedTrial], searches: Searches | None) -> list[PlannedTrial]:
        """The trials that need tables: also those of the baseline, whose tables are those of all proposals.

        With a reference for each seed, those on fresh seeds are made beforehand too.
        """
        if searches is None:
            return list(todo)
        baseline = next(arm for arm in self._plan.arms if arm.role == "baseline")
        return [*todo, *self._planner.trials_of(baseline, self._planner.every_seed())]

    def _rounds(self, queue: TrialQueue, session: Session) -> None:
        fruitless = 0
        while not queue.exhausted() and not queue.should_stop():
            before = queue.settled
            given_up = session.run_round(queue, self._folder.ray)
            if given_up is not None and not session.alive():
                queue.round_ended(None)
                raise StudyError(f"Ray died ({_first_line(given_up)}); the same command goes on from here")
            queue.round_ended(given_up)
            if given_up is not None:
                self._progress.warn(f"Ray gave up a round ({_first_line(given_up)}); starting another")
            fruitless = 0 if queue.settled > before else fruitless + 1
            if fruitless >= FRUITLESS_ROUNDS and not queue.exhausted():
                raise StudyError(f"Ray gave up {fruitless} times without finishing a trial; last: {given_up}")

    def _prepare(self, todo: Sequence[PlannedTrial], session: Session) -> None:
        configs = prepare_configs(self._workload, todo)
        if not configs or self._workload.prepare is None:
            return
        self._prepared = prepare_all(
            session,
            self._workload.prepare,
            configs,
            self._folder.reference,
            self._import_path(),
            self._stop,
            self._progress,
        )
        table = self._prepared, self._folder.reference
        measure_geometry(self._plan, self._workload, *table, session, self._import_path())
        if not self._options.accept_new_reference:
            check_references(self._prepared, self._ledger.latest())
        facts = dict(self._ledger.study_note("facts", {}))
        tables = {key: {"sha256": table.sha256, **table.facts} for key, table in self._prepared.items()}
        facts["references"] = dict(facts.get("references", {})) | tables
        self._ledger.set_study_note("facts", facts)

    def _import_path(self) -> tuple[str, ...]:
        return import_folders(self._spec.folder)

    def _notes(self, trial: PlannedTrial) -> Mapping[str, Any]:
        provenance = dict(self._provenance) | {"device": "cuda" if self._spec.run.resources.gpu else "cpu"}
        if self._workload.prepared_key is not None and self._prepared:
            prepared = self._prepared[self._workload.prepared_key(trial.config)]
            provenance |= {"reference_key": prepared.key, "reference_sha256": prepared.sha256}
        return {"provenance": provenance}

    def _assignment(self, trial: PlannedTrial, attempt: int, last_row: Row) -> Assignment:
        return Assignment(
            trial_id=trial.trial_id,
            attempt=attempt,
            train=self._workload.train,
            config=trial.config,
            baseline=self._spec.baseline if trial.arm.relative else None,
            evaluation=self._evaluation(trial),
            seed=trial.seed,
            replicate=trial.arm.replicate,
            checkpoint_dir=str(self._folder.checkpoints(trial.trial_id).resolve()),
            shared_dir=str(self._folder.reference.resolve()),
            pack=self._workload.pack or "",
            output_file=str((self._folder.trial(trial.trial_id) / "output.txt").resolve()),
            import_path=self._import_path(),
            last_step=last_row.step,
            last_row=last_row.metrics,
            flush_on=self._flush_on(trial),
            timeout_s=self._spec.run.timeout_s,
        )

    def _evaluation(self, trial: PlannedTrial) -> dict[str, Any]:
        """How a trial is evaluated; what the baseline alone measures is no part of any identity."""
        asked = self._spec.metrics.gradient_cosines and trial.arm.role == "baseline"
        return self._spec.evaluation.model_dump() | ({"gradient_cosines": True} if asked else {})

    def _flush_on(self, trial: PlannedTrial) -> str:
        """The metric whose report is sent at once: what says whether a proposal is behind, else the primary one."""
        if trial.arm.role == "proposal" and self._spec.early_stop.kind != "none":
            task = next((task for task in self._planner.searches if task.name in trial.arm.designs), None)
            if task is not None:
                return task.settings.objectives[0].name
        return self._spec.metrics.primary.name


def prepare_configs(workload: Workload, trials: Iterable[PlannedTrial]) -> dict[str, Mapping[str, Any]]:
    """One configuration for each table that the trials need, by its key."""
    if workload.prepared_key is None:
        return {}
    configs = (trial.config for trial in trials)
    return {workload.prepared_key(config): config for config in configs}


def _first_line(error: BaseException) -> str:
    """What went wrong, without the statement that a database adds to it."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return str(cause).splitlines()[0] if str(cause) else type(cause).__name__


def _noted_code(entry: LedgerTrial) -> str:
    return str((entry.attributes.get("provenance") or {}).get("code_hash", "unknown"))
