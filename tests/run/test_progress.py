import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from ablate.record.optuna_storage import Outcome
from ablate.run import progress as progress_module
from ablate.run.progress import ConsoleProgress, seconds_left


@pytest.mark.parametrize(
    ("failed", "lasted", "ages", "ran_s", "left"),
    [
        (1, [], [5.0], 5.0, None),
        (0, [10.0], [], 10.0, 90.0),  # one worker, one by one
        (0, [10.0], [10.0], 10.0, 40.0),  # two workers: the other's first is as good as done
        (0, [10.0, 10.0], [5.0, 5.0], 15.0, 35.0),
        (1, [10.0], [5.0], 15.0, 45.0),
        (0, [60.0], [60.0, 59.4, 60.0, 90.0], 60.0, 60.24048096192385),  # the first of a pack of five
        (0, [0.0], [1.0], 0.0, 0.0),
    ],
)
def test_what_runs_counts_for_the_share_that_it_has_run(failed, lasted, ages, ran_s, left):
    """Of ten trials: x = ended + sum of min(age / mean, 1) are done, r = ran (10 - x) / x seconds are left."""
    found = seconds_left(10, failed, lasted, ages, ran_s)
    assert found is None if left is None else found == pytest.approx(left, rel=1e-12)


def test_a_line_knows_that_a_pack_ends_together(monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now)
    text = io.StringIO()
    shown = ConsoleProgress("toy", Console(file=text, width=200))
    members = [SimpleNamespace(trial_id=str(k), seed=k, arm=SimpleNamespace(label="a")) for k in range(8)]
    with shown.trials(80, 80, 1):
        for member in members:
            shown.started(member)
        now = 20.0
        shown.ended(members[0], Outcome("FAIL", "diverged", error="nan"))
        now = 60.0
        for member in members[1:]:
            shown.ended(member, Outcome("COMPLETE", value=0.0))
        shown.expect(8)
    assert text.getvalue().splitlines() == [
        "toy: 80 trials to run on 1 workers",
        "toy: a · seed 0 failed, diverged: nan (0)",
        "toy: 1 of 80 done, 1 failed, 7 running",  # what fails at once says nothing of how long others take
        "toy: 2 of 80 done, 1 failed, 6 running, about 9 min left",
        "toy: 8 of 8 done, 1 failed, 0 running",
    ]
