"""Waiting trials entered many at a time; Optuna itself takes them one by one, in some sixteen statements each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from optuna.distributions import check_distribution_compatibility, distribution_to_json, json_to_distribution
from optuna.storages._rdb.models import TrialModel, TrialParamModel, TrialUserAttributeModel
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Connection, Engine, func, insert, select

#: So many in one transaction.
AT_ONCE = 500

TRIALS, PARAMS, ATTRIBUTES = TrialModel.__table__, TrialParamModel.__table__, TrialUserAttributeModel.__table__


def count_trials(engine: Engine, study_id: int) -> int:
    """How many trials a study has."""
    with engine.connect() as connection:
        return _count(connection, study_id)


def enter_waiting(engine: Engine, study_id: int, trials: Sequence[FrozenTrial], known: int) -> None:
    """Add waiting trials to a study as `Study.add_trial` adds each, all or none.

    Args:
        known: how many the study had. One that has more got these before a connection was lost: one process writes.
    Raises: ValueError where the study has a parameter with another kind of distribution.
    """
    with engine.begin() as connection:
        if _count(connection, study_id) > known:
            return
        _check_distributions(connection, study_id, trials)
        numbers = range(known, known + len(trials))
        rows = [{"study_id": study_id, "number": number, "state": TrialState.WAITING} for number in numbers]
        connection.execute(insert(TRIALS), rows)
        own = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id, TRIALS.c.number >= known)
        ids = connection.execute(own.order_by(TRIALS.c.number)).scalars().all()
        for table, of_trial in ((PARAMS, _params), (ATTRIBUTES, _attributes)):
            found = [{"trial_id": i, **row} for i, trial in zip(ids, trials, strict=True) for row in of_trial(trial)]
            if found:
                connection.execute(insert(table), found)


def _count(connection: Connection, study_id: int) -> int:
    return int(connection.execute(select(func.count()).where(TRIALS.c.study_id == study_id)).scalar_one())


def _params(trial: FrozenTrial) -> list[dict[str, Any]]:
    return [
        {
            "param_name": name,
            "param_value": distribution.to_internal_repr(trial.params[name]),
            "distribution_json": distribution_to_json(distribution),
        }
        for name, distribution in trial.distributions.items()
    ]


def _attributes(trial: FrozenTrial) -> list[dict[str, Any]]:
    return [{"key": name, "value_json": json.dumps(value)} for name, value in trial.user_attrs.items()]


def _check_distributions(connection: Connection, study_id: int, trials: Sequence[FrozenTrial]) -> None:
    """As Optuna does: against the first one stored, or else the first of these."""
    wanted = {(row["param_name"], row["distribution_json"]) for trial in trials for row in _params(trial)}
    first: dict[str, str] = {}
    for name, distribution in wanted:
        if name not in first:
            stored = connection.execute(
                select(PARAMS.c.distribution_json)
                .join(TRIALS)
                .where(TRIALS.c.study_id == study_id, PARAMS.c.param_name == name)
                .limit(1)
            ).scalar()
            first[name] = stored or distribution
        check_distribution_compatibility(json_to_distribution(first[name]), json_to_distribution(distribution))
