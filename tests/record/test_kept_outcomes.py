"""What the folders of trials say of how they ended fills a ledger that came back empty."""

import json
import math

import pytest

from ablate.record.history import HistoryFile
from ablate.record.kept_outcomes import NAME, kept_outcome
from ablate.record.optuna_storage import Ledger, Outcome
from ablate.workloads.contract import Row
from tests.record.test_optuna_storage import plan_of

OUTCOMES = [
    Outcome("COMPLETE", value=0.5, metrics={"loss": 0.5, "odd": math.inf}),
    Outcome("FAIL", "diverged", value=math.nan, metrics={"loss": math.nan}, error="loss is nan"),
    Outcome("PRUNED", value=0.75, metrics={"loss": 0.75}),
]


def told(ledger):
    """All that the ledger says of trials, but for its own ids."""
    return {
        entry.trial_id: (entry.attempt, entry.state, repr(entry.outcome), dict(entry.attributes), entry.started)
        for entry in ledger.attempts()
    }


@pytest.fixture
def plan():
    return plan_of(*[(weight, "sum", 1, "x") for weight in (1.0, 0.5, 0.25, 0.0)])


@pytest.fixture
def before(tmp_path, plan):
    """A study of four trials, three of which have ended; its store is then lost. Returns: what that said."""
    ledger = Ledger.create(None, tmp_path, "s", "minimize")
    ledger.add(plan.trials, plan)
    for entry, outcome in zip(ledger.attempts(), OUTCOMES, strict=False):
        ledger.claim(entry)
        ledger.note(entry, "provenance", {"code_hash": "abc"})
        history = HistoryFile(tmp_path / "trials" / entry.trial_id / "history.jsonl")
        history.append([Row(1, 0.0, {"loss": 2.0}), Row(2, 0.0, {"loss": outcome.value})])
        history.close()
        ledger.note_outcome(entry, outcome)
        ledger.finish(entry, outcome)
    found = told(ledger)
    ledger.close()
    for path in tmp_path.glob("optuna.db*"):
        path.unlink()
    return found


def test_a_ledger_that_came_back_empty_is_filled_in(tmp_path, plan, before):
    said = []
    ledger = Ledger.create(None, tmp_path, "s", "minimize", said.append)
    ledger.add(plan.trials, plan)
    assert told(ledger) == before
    trials = ledger.storage.get_all_trials(1)
    assert [trial.values for trial in trials] == [[0.5], None, [0.75], None]
    assert trials[0].intermediate_values == {1: 2.0, 2: 0.5}
    assert trials[1].intermediate_values == {1: 2.0}
    assert said == ["3 trials that had ended were missing from the ledger; it is filled in from their folders"]
    # a trial that is run again is not taken from its folder
    ledger.add(plan.trials[1:2], plan, attempt=2)
    assert ledger.latest()[plan.trials[1].trial_id].state == "WAITING"
    ledger.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept | {"trial_id": "of another"},
        lambda kept: kept | {"attributes": []},
        lambda kept: kept | {"attributes": kept["attributes"] | {"outcome": {"state": "RUNNING"}}},
        lambda kept: kept | {"ended": "yesterday"},
        lambda kept: [kept],
    ],
)
def test_a_file_that_is_none_of_the_trial_is_left_aside(tmp_path, plan, before, change):
    trial_id = plan.trials[0].trial_id
    path = tmp_path / "trials" / trial_id / NAME
    assert kept_outcome(path.parent, trial_id) is not None
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    assert kept_outcome(path.parent, trial_id) is None
    ledger = Ledger.create(None, tmp_path, "s", "minimize")
    ledger.add(plan.trials, plan)
    assert ledger.latest()[trial_id].state == "WAITING"
    ledger.close()
