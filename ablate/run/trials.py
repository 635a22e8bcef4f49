"""Runs the trials of an invocation: tables first, then rounds of Ray until no trial is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ablate.errors import StudyError, first_line
from ablate.plan.model import Plan, PlannedTrial
from ablate.run.briefing import Briefing
from ablate.run.invocation import Invocation
from ablate.run.nodes import check_nodes
from ablate.run.packing import Measured, measure_in_worker, pack_key_of, pack_sizes, place_of
from ablate.run.packs import Packs
from ablate.run.preparation import check_references, measure_geometry, prepare_all
from ablate.run.provenance import hardware
from ablate.run.ray_tune.session import Session
from ablate.run.recorder import Recorder
from ablate.run.searches import Searches, open_searches
from ablate.run.trial_queue import TrialQueue
from ablate.workloads.contract import Prepared, Workload

#: A round that Ray gives up on is followed by another, as long as rounds finish something.
FRUITLESS_ROUNDS = 3


def run_trials(
    invocation: Invocation, plan: Plan, todo: list[PlannedTrial], recorded: int, session: Session
) -> tuple[Plan, bool]:
    """Run trials, and those that searches propose.

    Args:
        recorded: how many others, that the invocation is about too, have ended before.
    Returns: the plan with what was proposed; whether MLflow lacks something.
    Raises: StudyError where Ray dies, or gives up again and again without finishing a trial.
    """
    run, progress = invocation.spec.run, invocation.progress
    recorder = Recorder(
        invocation.folder,
        invocation.ledger,
        invocation.tracker,
        invocation.spec.metrics.primary,
        keep_checkpoints=run.keep == "last",
        warn=progress.warn,
    )
    searches = _searches(invocation, plan, session)
    with invocation.stop.on_signals(progress.warn):
        check_nodes(session, invocation.folder, invocation.workload.train, invocation.import_path)
        prepared = _prepare(invocation, plan, _to_prepare(invocation, plan, todo, searches), session)
        briefing = Briefing(invocation, prepared)
        queue = TrialQueue(
            todo,
            entries=invocation.ledger.latest,
            recorder=recorder,
            assignment=briefing.assignment,
            notes=briefing.notes,
            run=run,
            progress=progress,
            stop=invocation.stop,
            searches=searches,
            packs=_packs(invocation, todo, session),
        )
        to_run = len(todo) + (searches.pending if searches else 0)
        with progress.trials(recorded + to_run, to_run, session.slots()):
            _rounds(invocation, queue, session)
    return searches.plan if searches else plan, recorder.tracker_lags


def _searches(invocation: Invocation, plan: Plan, session: Session) -> Searches | None:
    """What is still to be proposed; None where nothing is, or where some arms alone were asked for."""
    if invocation.options.arms or not invocation.planner.search_names():
        return None
    return open_searches(
        invocation.spec, invocation.planner, plan, invocation.ledger, invocation.folder, session.slots()
    )


def _to_prepare(
    invocation: Invocation, plan: Plan, todo: Sequence[PlannedTrial], searches: Searches | None
) -> list[PlannedTrial]:
    """The trials that need tables: also those of the baseline, whose tables are those of all proposals.

    With a reference for each seed, those on fresh seeds are made beforehand too.
    """
    if searches is None:
        return list(todo)
    baseline = next(arm for arm in plan.arms if arm.role == "baseline")
    return [*todo, *invocation.planner.trials_of(baseline, invocation.planner.every_seed())]


def _prepare(invocation: Invocation, plan: Plan, todo: Sequence[PlannedTrial], session: Session) -> dict[str, Prepared]:
    """Make the tables that trials need, and note them. Returns: them, by key."""
    configs = prepare_configs(invocation.workload, todo)
    if not configs or invocation.workload.prepare is None:
        return {}
    prepared = prepare_all(
        session,
        invocation.workload.prepare,
        configs,
        invocation.folder.reference,
        invocation.import_path,
        invocation.stop,
        invocation.progress,
    )
    table = prepared, invocation.folder.reference
    measure_geometry(plan, invocation.workload, *table, session, invocation.import_path)
    if not invocation.options.accept_new_reference:
        check_references(prepared, invocation.ledger.latest())
    facts = dict(invocation.ledger.study_note("facts", {}))
    tables = {key: {"sha256": table.sha256, **table.facts} for key, table in prepared.items()}
    facts["references"] = dict(facts.get("references", {})) | tables
    invocation.ledger.set_study_note("facts", facts)
    return prepared


def _packs(invocation: Invocation, todo: Sequence[PlannedTrial], session: Session) -> Packs:
    """What is trained together, measured where the file does not say how many."""
    if invocation.workload.pack is None:
        return Packs()
    key, size = pack_key_of(invocation.workload), invocation.spec.run.pack
    if size != "auto":
        return Packs(key, size, slots=session.slots)
    if invocation.workload.pack_costs is None or invocation.stop.reason:
        return Packs()
    folders, reference = invocation.import_path, invocation.folder.reference
    where = place_of(hardware(), invocation.code_hash, invocation.spec.run, session.slots())
    measure = measure_in_worker(
        session, invocation.workload, reference, folders, where, invocation.stop, invocation.progress
    )
    facts = dict(invocation.ledger.study_note("facts", {}))
    known = {key: Measured.from_fact(fact) for key, fact in facts.get("packs", {}).items()}
    known = {key: measured for key, measured in known.items() if measured.where == where}
    sizes, found = pack_sizes(todo, invocation.workload, session.slots(), known, measure, invocation.progress.say)
    if found != known:
        facts["packs"] = {key: measured.to_fact() for key, measured in found.items()}
        invocation.ledger.set_study_note("facts", facts)
    return Packs(key, None, sizes, session.slots)


def _rounds(invocation: Invocation, queue: TrialQueue, session: Session) -> None:
    fruitless = 0
    while not queue.exhausted() and not queue.should_stop():
        before = queue.settled
        given_up = session.run_round(queue, invocation.folder.ray)
        if given_up is not None and not session.alive():
            queue.round_ended(None)
            raise StudyError(f"Ray died ({first_line(given_up)}); the same command goes on from here")
        queue.round_ended(given_up)
        if given_up is not None:
            invocation.progress.warn(f"Ray gave up a round ({first_line(given_up)}); starting another")
        fruitless = 0 if queue.settled > before else fruitless + 1
        if fruitless >= FRUITLESS_ROUNDS and not queue.exhausted():
            raise StudyError(f"Ray gave up {fruitless} times without finishing a trial; last: {given_up}")


def prepare_configs(workload: Workload, trials: Iterable[PlannedTrial]) -> dict[str, Mapping[str, Any]]:
    """One configuration for each table that the trials need, by its key."""
    if workload.prepared_key is None:
        return {}
    configs = (trial.config for trial in trials)
    return {workload.prepared_key(config): config for config in configs}
