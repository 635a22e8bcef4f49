"""What holds of a finished study, whatever was done to it on the way."""

from collections import Counter

from ablate.record.history import last_values, read_history


def assert_recorded_once(place, trials, steps, name="toy"):
    """Every trial is COMPLETE once in Optuna and once in MLflow, each step once in its history, and all three agree."""
    ledger = place.optuna_trials(name)
    assert Counter(trial.state.name for trial in ledger) == {"COMPLETE": trials}
    ids = {trial.user_attrs["trial_id"] for trial in ledger}
    assert len(ids) == trials
    runs = place.mlflow_runs(name)
    assert Counter(run.info.status for run in runs) == {"FINISHED": trials}
    assert {run.data.tags["ablate.trial_id"] for run in runs} == ids
    for run in runs:
        history = read_history(
            place.path / "runs" / name / "trials" / run.data.tags["ablate.trial_id"] / "history.jsonl"
        )
        assert [row.step for row in history] == list(range(1, steps + 1))
        assert run.data.metrics == last_values(history)
    assert place.ablate("check", name)[0] == "the records agree\n"
