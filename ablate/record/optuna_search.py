"""The proposals of a search: a study of its own in Optuna's storage, and the sampler that makes them.

The sampler works on a copy in memory, and what it proposes is stored at once, whole: a kill leaves no half a proposal.
It is seeded by the number of the proposal, so what it says next depends on the seed and on what is stored, and not on
how often the process was started.
"""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import (
    BaseSampler,
    BruteForceSampler,
    CmaEsSampler,
    GPSampler,
    GridSampler,
    NSGAIIISampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from ablate.errors import StudyError
from ablate.plan.model import Proposal, SearchResult
from ablate.plan.space import Answer, Choice, Dimension, Space
from ablate.record.foreign_records import proposal_fault_of
from ablate.record.optuna_storage import Ledger
from ablate.spec.models import EarlyStop, SearchSettings

FEASIBLE = "feasible"
"""Name of the one constraint that samplers are told of: 0 where a proposal can be trained, 1 where it cannot."""
LEARN_FROM_INFEASIBLE = frozenset({"tpe", "gp", "nsga2", "nsga3"})
SEQUENCES = frozenset({"qmc", "grid"})
"""Samplers whose seed stands for a whole sequence of proposals."""

#: Optuna keeps the state of CMA-ES pickled. What is unpickled comes from the run folder, never from a shared store.
PICKLED = "cma:"
SEQUENCE_STATE = "ablate:sequence"


def make_sampler(settings: SearchSettings, space: Space, number: int) -> BaseSampler:
    """The sampler as it proposes the arm of that number."""
    digest = hashlib.sha256(f"{settings.seed}/{number}".encode()).digest()
    seed = settings.seed if settings.sampler in SEQUENCES else int.from_bytes(digest[:4], "big")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Optuna calls experimental
        return SAMPLERS[settings.sampler](seed, space)


SAMPLERS: dict[str, Callable[[int, Space], BaseSampler]] = {
    "tpe": lambda seed, _space: TPESampler(seed=seed, constant_liar=True),
    "gp": lambda seed, _space: GPSampler(seed=seed, warn_independent_sampling=False),
    "cmaes": lambda seed, _space: CmaEsSampler(seed=seed, warn_independent_sampling=False),
    "nsga2": lambda seed, _space: NSGAIISampler(seed=seed),
    "nsga3": lambda seed, _space: NSGAIIISampler(seed=seed),
    "random": lambda seed, _space: RandomSampler(seed=seed),
    "qmc": lambda seed, _space: QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False),
    "grid": lambda seed, space: GridSampler(_options(space), seed=seed),
    "brute_force": lambda seed, _space: BruteForceSampler(seed=seed),
}


def _options(space: Space) -> dict[str, Sequence[Any]]:
    return {name: dim.options for name, dim in space.dimensions.items() if isinstance(dim, Choice)}


def make_pruner(early_stop: EarlyStop, interval: int | None, steps: int | None) -> BasePruner:
    """What says that a proposal is behind.

    Args:
        interval: steps between evaluations, None where that is not known.
        steps: steps of a whole training, None where that is not known.
    """
    factor = early_stop.reduction_factor
    match early_stop.kind:
        case "asha":
            return SuccessiveHalvingPruner(min_resource=interval or "auto", reduction_factor=factor)
        case "hyperband":
            return HyperbandPruner(min_resource=interval or 1, max_resource=steps or "auto", reduction_factor=factor)
        case "median":
            return MedianPruner(n_startup_trials=early_stop.startup_trials)
        case _:
            return NopPruner()


class SearchRecord:
    """The proposals of one search.

    Args:
        storage: Optuna's storage of the study.
        name: of the search's own study in it.
        private: a file of the run folder for what may not be read from a shared store.
    Raises: StudyError where what is stored under the name is another search.
    """

    def __init__(
        self, storage: Any, name: str, settings: SearchSettings, space: Space, pruner: BasePruner, private: Path
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._space = space
        self._private = private
        directions = [objective.goal for objective in settings.objectives]
        stored = optuna.create_study(storage=storage, study_name=name, directions=directions, load_if_exists=True)
        self._study_id = storage.get_study_id_from_name(name)
        self._check_definition(stored, directions)
        self._memory = optuna.create_study(study_name=name, directions=directions, pruner=pruner)
        self._stored_ids: dict[int, int] = {}
        self._load()
        self.exhausted = bool(stored.user_attrs.get("exhausted", False))

    def _check_definition(self, stored: optuna.Study, directions: Sequence[str]) -> None:
        """See that the stored proposals answer the same questions.

        Raises: StudyError.
        """
        definition = {
            "dimensions": {name: _distribution(dim)._asdict() for name, dim in self._space.dimensions.items()},
            "objectives": [objective.name for objective in self._settings.objectives],
            "simplex": self._settings.simplex,
            "sampler": self._settings.sampler,
            "seed": self._settings.seed,
        }
        definition = json.loads(json.dumps(definition, default=list))
        known = stored.user_attrs.get("definition")
        stored_directions = [direction.name.lower() for direction in stored.directions]
        if known is None and not stored.get_trials(deepcopy=False):
            stored.set_user_attr("definition", definition)
        elif known != definition or stored_directions != list(directions):
            changed = [key for key, value in definition.items() if (known or {}).get(key) != value] or ["goal"]
            raise StudyError(
                f"{stored.study_name} has {len(stored.trials)} proposals, made with other {', '.join(changed)}; "
                "proposals of two searches cannot go on as one: put the old one back, or give the study another name"
            )

    def _load(self) -> None:
        private = self._read_private()
        for trial in self._storage.get_all_trials(self._study_id, deepcopy=True):
            system = {key: value for key, value in trial.system_attrs.items() if not key.startswith(PICKLED)}
            trial.system_attrs = system | private.get(trial.number, {})
            self._stored_ids[trial.number] = trial._trial_id  # noqa: SLF001 - the storage's own interface takes this id
            self._memory.add_trial(trial)
            for key, value in system.get(SEQUENCE_STATE, {}).items():
                self._memory._storage.set_study_system_attr(self._memory._study_id, key, value)  # noqa: SLF001 - as above

    # --- reading ---

    def proposals(self) -> list[Proposal]:
        """Every arm that was proposed, oldest first, also those that no one could train."""
        return [_proposal(trial) for trial in self._memory.get_trials(deepcopy=False)]

    # --- writing ---

    def ask(self) -> tuple[int, Answer]:
        """A new proposal, in memory alone: `enter` or `reject` it before the next."""
        number = len(self._memory.get_trials(deepcopy=False))
        self._memory.sampler = make_sampler(self._settings, self._space, number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._memory.ask()

            def suggest(dim: Dimension) -> Any:
                return trial._suggest(dim.name, _distribution(dim))  # noqa: SLF001 - the one call for any distribution

            answer = self._space.ask(suggest)
        return number, answer

    def enter(self, number: int, answer: Answer, arm: str, seeds: Sequence[int], trial_ids: Sequence[str]) -> Proposal:
        """Store the proposal that was asked for as RUNNING."""
        if self._settings.sampler in LEARN_FROM_INFEASIBLE:
            self._constrain(number, 0.0)
        self._describe(number, answer, {"arm": arm, "seeds": list(seeds), "trial_ids": list(trial_ids)})
        self._store(number)
        return _proposal(self._trial(number))

    def extend(self, number: int, seeds: Sequence[int], trial_ids: Sequence[str]) -> None:
        """Note that a RUNNING proposal is trained on more seeds."""
        trial = self._trial(number)
        for name, value in {"seeds": list(seeds), "trial_ids": list(trial_ids)}.items():
            self._storage.set_trial_user_attr(self._stored_ids[number], name, value)
            self._memory._storage.set_trial_user_attr(trial._trial_id, name, value)  # noqa: SLF001

    def reject(self, number: int, answer: Answer, why: str) -> None:
        """Store the proposal that was asked for as one that cannot be trained."""
        learns = self._settings.sampler in LEARN_FROM_INFEASIBLE
        if learns:
            self._constrain(number, 1.0)
        self._describe(number, answer, {"infeasible": why})
        self._finish_in_memory(number, TrialState.PRUNED if learns else TrialState.FAIL, None)
        self._store(number)

    def warm_start(
        self,
        answers: Mapping[str, Any],
        arm: str,
        seeds: Sequence[int],
        trial_ids: Sequence[str],
        values: Sequence[float],
    ) -> None:
        """Store an arm that was trained for another design as a finished proposal."""
        distributions = {name: _distribution(self._space.dimensions[name]) for name in answers}
        attributes = {"arm": arm, "seeds": list(seeds), "trial_ids": list(trial_ids), "warm_start": True}
        system = {f"constraints:{FEASIBLE}": 0.0} if self._settings.sampler in LEARN_FROM_INFEASIBLE else {}
        self._memory.add_trial(
            create_trial(
                state=TrialState.COMPLETE, values=list(values), params=dict(answers), distributions=distributions,
                user_attrs=attributes, system_attrs=system,
            )
        )  # fmt: skip
        self._store(len(self._memory.get_trials(deepcopy=False)) - 1)

    def again(self, failed: Proposal, values: Sequence[float]) -> None:
        """Store a proposal that had failed as a new one that has ended: a finished one cannot be changed."""
        old = self._memory.trials[failed.number]
        system = {key: value for key, value in old.system_attrs.items() if key.startswith("constraints:")}
        attributes = {name: value for name, value in old.user_attrs.items() if name != "reason"}
        self._memory.add_trial(
            create_trial(
                state=TrialState.COMPLETE,
                values=list(values),
                params=dict(old.params),
                distributions=dict(old.distributions),
                user_attrs=attributes | {"again": failed.number},
                system_attrs=system,
            )
        )
        self._store(len(self._memory.get_trials(deepcopy=False)) - 1)

    def report(self, number: int, step: int, value: float) -> bool:
        """Note the objective at an evaluation point. Returns: whether the proposal is behind and should stop."""
        trial = self._trial(number)
        storage = self._memory._storage  # noqa: SLF001 - the public interface of a trial would sample again
        storage.set_trial_intermediate_value(trial._trial_id, step, value)  # noqa: SLF001
        self._storage.set_trial_intermediate_value(self._stored_ids[number], step, value)
        before = set(trial.system_attrs)
        behind = self._memory.pruner.prune(self._memory, self._trial(number))
        now = self._trial(number).system_attrs
        for key in now.keys() - before:
            self._storage.set_trial_system_attr(self._stored_ids[number], key, now[key])
        return bool(behind)

    def tell(self, number: int, state: str, values: Sequence[float] | None, reason: str = "") -> None:
        """Say how a proposal ended. PRUNED keeps its last reported value."""
        running = self._trial(number)
        before = set(running.system_attrs)
        stored = self._stored_ids[number]
        if reason:
            self._storage.set_trial_user_attr(stored, "reason", reason)
            self._memory._storage.set_trial_user_attr(running._trial_id, "reason", reason)  # noqa: SLF001
        self._finish_in_memory(number, TrialState[state], values)
        trial = self._trial(number)
        for key in trial.system_attrs.keys() - before:
            self._storage.set_trial_system_attr(stored, key, trial.system_attrs[key])
        self._storage.set_trial_state_values(stored, state=trial.state, values=trial.values)

    # --- inside ---

    def _trial(self, number: int) -> FrozenTrial:
        """A trial of the copy, to read."""
        return self._memory.get_trials(deepcopy=False)[number]

    def _constrain(self, number: int, value: float) -> None:
        trial = self._trial(number)
        storage = self._memory._storage  # noqa: SLF001 - as above
        storage.set_trial_system_attr(trial._trial_id, f"constraints:{FEASIBLE}", value)  # noqa: SLF001

    def _describe(self, number: int, answer: Answer, attributes: Mapping[str, Any]) -> None:
        trial = self._trial(number)
        for name, value in {"values": answer.values, "shares": answer.shares, **attributes}.items():
            self._memory._storage.set_trial_user_attr(trial._trial_id, name, value)  # noqa: SLF001

    def _finish_in_memory(self, number: int, state: TrialState, values: Sequence[float] | None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self._memory.tell(number, None if values is None else list(values), state=state)
            except RuntimeError:  # how samplers of finite spaces say that all of it was proposed
                self.exhausted = True
                self._storage.set_study_user_attr(self._study_id, "exhausted", True)

    def _store(self, number: int) -> None:
        """Write a trial of the copy into the storage, whole."""
        trial = copy.deepcopy(self._trial(number))
        pickled = {key: value for key, value in trial.system_attrs.items() if key.startswith(PICKLED)}
        if pickled:
            with self._private.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"number": number, "attributes": pickled}) + "\n")
        trial.system_attrs = {key: value for key, value in trial.system_attrs.items() if key not in pickled}
        memory = self._memory._storage.get_study_system_attrs(self._memory._study_id)  # noqa: SLF001 - as above
        sequence = {key: value for key, value in memory.items() if key.startswith("qmc")}
        if sequence:
            trial.system_attrs[SEQUENCE_STATE] = sequence
        self._stored_ids[number] = self._storage.create_new_trial(self._study_id, template_trial=trial)

    def _read_private(self) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        if self._private.exists():
            for line in self._private.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:  # the last line of a killed driver; the proposal was not stored either
                    continue
                found[int(entry["number"])] = entry["attributes"]
        return found


def search_results(ledger: Ledger, study: str, names: Iterable[str]) -> dict[str, SearchResult]:
    """What the searches of a study have proposed, by name, for reading; makes nothing."""
    return {name: _result(ledger.storage, f"{study}/{name}") for name in names}


def _result(storage: Any, name: str) -> SearchResult:
    try:
        study_id = storage.get_study_id_from_name(name)
    except KeyError:
        return SearchResult()
    proposals = tuple(_proposal(trial) for trial in storage.get_all_trials(study_id, deepcopy=False))
    return SearchResult(proposals, bool(storage.get_study_user_attrs(study_id).get("exhausted", False)))


def _distribution(dim: Dimension) -> BaseDistribution:
    if isinstance(dim, Choice):
        return CategoricalDistribution(dim.options)
    if dim.integer:
        return IntDistribution(int(dim.low), int(dim.high), log=dim.log)
    return FloatDistribution(dim.low, dim.high, log=dim.log)


def _proposal(trial: FrozenTrial) -> Proposal:
    attributes = trial.user_attrs
    fault = proposal_fault_of(attributes)
    if fault is not None:
        raise StudyError(
            f"proposal {trial.number} of a search in the store was not written by this toolkit: {fault}; "
            "remove it there, or give the study another name"
        )
    return Proposal(
        number=trial.number,
        state=trial.state.name,
        values=dict(attributes.get("values", {})),
        shares=dict(attributes.get("shares", {})),
        seeds=tuple(attributes.get("seeds", ())),
        arm=str(attributes.get("arm", "")),
        trial_ids=tuple(attributes.get("trial_ids", ())),
        objectives=tuple(trial.values) if trial.values is not None else None,
        reason="infeasible" if "infeasible" in attributes else str(attributes.get("reason", "")),
        warm_start=bool(attributes.get("warm_start", False)),
        params=dict(trial.params),
        again=attributes.get("again"),
    )
