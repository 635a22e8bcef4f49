import math
from dataclasses import replace

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from ablate.errors import StudyError
from ablate.plan.model import Arm, Plan, PlannedTrial, Power
from ablate.record.optuna_entries import count_trials, enter_waiting
from ablate.record.optuna_storage import Ledger, Outcome
from ablate.spec.models import (
    Analysis,
    Controls,
    EarlyStop,
    Evaluation,
    Factor,
    Metric,
    Metrics,
    ReportSettings,
    Run,
    Seeds,
    StudySpec,
    Track,
)  # fmt: skip

FACTORS = (
    Factor("weight", "float", 1.0, (0.0, 1.0)),
    Factor("mode", "choice", "sum", ("sum", "mean"), choices=("sum", "mean", "max")),
    Factor("layers", "int", 1, (1, 2)),
    Factor("free", "free", 1, (1, "1", None)),
)


def plan_of(*rows):
    """A plan of one seed with an arm for each row of factor values."""
    spec = StudySpec(
        "s", "", "m:f", {}, FACTORS, (), (), (), Seeds(count=1), Controls(), Metrics(primary=Metric(name="loss")),
        Analysis(), EarlyStop(), Evaluation(), Run(), Track(), ReportSettings(),
    )  # fmt: skip
    arms = [
        Arm(f"arm-{i}", {}, ("grid",), dict(zip(("weight", "mode", "layers", "free"), row, strict=True)))
        for i, row in enumerate(rows)
    ]
    trials = [PlannedTrial(f"{i:012x}", arm, 0) for i, arm in enumerate(arms)]
    return Plan(spec, tuple(arms), tuple(trials), Power(0.5, math.inf, False))


ROW = (1.0, "sum", 1, "x")


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger.create(None, tmp_path, "s", "minimize")
    yield opened
    opened.close()


def stored(tmp_path):
    return optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path}/optuna.db").trials


def test_waiting_trials_show_their_parameters(ledger, tmp_path):
    plan = plan_of((0.5, "mean", 2, None))
    assert ledger.add(plan.trials, plan) == 1
    [trial] = stored(tmp_path)
    assert trial.state.name == "WAITING"
    assert trial.params == {"weight": 0.5, "mode": "mean", "layers": 2}
    assert trial.user_attrs == {
        "factor.free": None,
        "trial_id": "000000000000",
        "arm": "arm-0",
        "seed": 0,
        "replicate": 0,
        "designs": "grid",
        "attempt": 1,
    }


def test_arms_and_values_added_later_fit_the_stored_study(ledger, tmp_path):
    first = plan_of(ROW)
    ledger.add(first.trials, first)
    later = plan_of(ROW, (-7.0, "max", 9, [1, 2]), (1e6, "mean", 1, True))
    ledger.add(later.trials[1:], later)
    assert [trial.params["weight"] for trial in stored(tmp_path)] == [1.0, -7.0, 1e6]


def test_a_trial_is_claimed_once_and_can_be_put_back(ledger):
    plan = plan_of(ROW)
    ledger.add(plan.trials, plan)
    [entry] = ledger.attempts()
    assert ledger.claim(entry)
    assert not ledger.claim(entry)
    assert ledger.get(entry).state == "RUNNING"
    ledger.release(entry)
    assert ledger.get(entry).state == "WAITING"
    assert ledger.claim(entry)


def test_a_claimed_trial_is_known_as_it_is_stored(ledger, tmp_path):
    plan = plan_of(ROW)
    ledger.add(plan.trials, plan)
    [entry] = ledger.attempts()
    ledger.note(entry, "before", 1)
    ledger.claim(entry)
    ledger.note(entry, "sizes", (1, 2))
    ledger.note(entry, "sizes", (3, {4: None}))
    other = Ledger.find(None, tmp_path, "s")
    assert other.attempts() == [ledger.get(entry)]
    assert ledger.get(entry).attributes["sizes"] == [3, {"4": None}]
    other.close()


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("COMPLETE", value=0.5, metrics={"loss": 0.5, "odd": math.inf}),
        Outcome("FAIL", "diverged", metrics={"loss": math.nan}, error="loss is nan"),
        Outcome("FAIL", "exception", error="boom"),
    ],
)
def test_an_outcome_comes_back_whole(ledger, outcome):
    plan = plan_of(ROW)
    ledger.add(plan.trials, plan)
    [entry] = ledger.attempts()
    ledger.claim(entry)
    ledger.note_outcome(entry, outcome)
    ledger.finish(entry, outcome)
    back = ledger.get(entry)
    assert back.state == outcome.state
    assert repr(back.outcome) == repr(outcome)


def test_the_highest_attempt_counts(ledger):
    plan = plan_of(ROW)
    for attempt in (1, 3, 2):
        ledger.add(plan.trials, plan, attempt=attempt)
    assert ledger.latest()["000000000000"].attempt == 3
    assert len(ledger.attempts()) == 3


def test_looking_for_a_ledger_makes_none(tmp_path):
    assert Ledger.find(None, tmp_path, "s") is None
    assert list(tmp_path.iterdir()) == []
    Ledger.create(None, tmp_path, "s", "minimize").close()
    assert Ledger.find(None, tmp_path, "another") is None
    found = Ledger.find(None, tmp_path, "s")
    assert found is not None
    assert found.goal == "minimize"
    found.close()


def test_a_study_that_was_renamed_is_not_begun_anew(tmp_path):
    Ledger.create(None, tmp_path, "renamed", "minimize").close()
    with pytest.raises(StudyError) as caught:
        Ledger.create(None, tmp_path, "s", "minimize")
    assert str(caught.value) == f"{tmp_path}/optuna.db holds renamed, not s; rename it back"
    assert optuna.get_all_study_names(f"sqlite:///{tmp_path}/optuna.db") == ["renamed"]


def test_an_empty_database_file_counts_as_absent(tmp_path):
    (tmp_path / "optuna.db").touch()
    assert Ledger.find(None, tmp_path, "s") is None
    Ledger.create(None, tmp_path, "s", "minimize").close()
    assert (tmp_path / "optuna.db").stat().st_size > 0
    assert sorted(path.name for path in tmp_path.iterdir() if "tmp" in path.name) == []


def test_values_that_a_dashboard_cannot_draw_are_no_intermediate_values(ledger, tmp_path):
    plan = plan_of(ROW)
    ledger.add(plan.trials, plan)
    [entry] = ledger.attempts()
    ledger.claim(entry)
    for step, value in enumerate((1.0, math.inf, math.nan, 0.5)):
        ledger.report(entry, step, value)
    assert stored(tmp_path)[0].intermediate_values == {0: 1.0, 3: 0.5}


def test_trials_entered_together_are_as_optuna_enters_each(ledger, tmp_path, monkeypatch):
    monkeypatch.setattr("ablate.record.optuna_storage.AT_ONCE", 2)
    ledger.add(plan_of(ROW).trials, plan_of(ROW))
    plan = plan_of(ROW, (0.0, "mean", 2, None), (0.25, "max", 1, "1"), (1.0, "sum", 2, 1))
    assert ledger.add(plan.trials[1:], plan) == 3
    together = stored(tmp_path)
    other = optuna.create_study(study_name="s", storage=f"sqlite:///{tmp_path}/other.db")
    other.add_trials(together)
    assert [trial.number for trial in together] == [0, 1, 2, 3]
    assert other.trials == together
    assert [entry.trial_id for entry in ledger.attempts()] == [trial.trial_id for trial in plan.trials]


def test_trials_entered_before_a_connection_was_lost_are_not_entered_again(ledger, tmp_path):
    waiting = [create_trial(state=TrialState.WAITING, user_attrs={"trial_id": "0" * 12})]
    engine = ledger.storage.engine
    for _again in range(2):
        enter_waiting(engine, 1, waiting, known=0)
    assert count_trials(engine, 1) == 1


def test_trials_whose_parameters_do_not_fit_the_stored_study_are_all_left_out(ledger, tmp_path):
    ledger.add(plan_of(ROW).trials, plan_of(ROW))
    plan = plan_of(ROW, ROW)
    others = tuple(replace(factor, kind="int") if factor.path == "weight" else factor for factor in FACTORS)
    changed = replace(plan, spec=replace(plan.spec, factors=others))
    with pytest.raises(ValueError, match="Cannot set different distribution kind"):
        ledger.add(changed.trials[1:], changed)
    assert len(stored(tmp_path)) == 1


def test_trials_are_entered_only_by_who_holds_the_study(ledger):
    def lost():
        raise StudyError("taken over")

    ledger.storage.guard = lost
    with pytest.raises(StudyError, match="taken over"):
        ledger.add(plan_of(ROW).trials, plan_of(ROW))
    ledger.storage.guard = lambda: None
    assert ledger.attempts() == []
