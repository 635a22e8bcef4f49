from datetime import UTC, datetime

import pytest

from ablate.run import status as status_module
from ablate.run.status import _eta_s, busy_s


@pytest.mark.parametrize(
    ("ended", "seconds"),
    [
        ([(0.0, 10.0)], 10.0),
        ([(0.0, 10.0), (10.0, 10.0)], 20.0),
        ([(0.0, 10.0), (0.0, 10.0), (5.0, 10.0), (100.0, 5.0)], 20.0),  # a pack of two, one beside it, one much later
        ([(0.0, 10.0), (2.0, 3.0)], 10.0),
    ],
)
def test_trials_that_ran_together_are_counted_once(ended, seconds):
    assert busy_s(ended) == seconds


def test_the_first_of_a_pack_to_end_tells_of_the_others(monkeypatch):
    monkeypatch.setattr(status_module.time, "time", lambda: 160.0)
    started = [datetime.fromtimestamp(100.0, UTC)] * 4 + [None] * 4
    lasted = [60.0] + [float("nan")] * 7
    states = ["COMPLETE"] + ["RUNNING"] * 3 + ["WAITING"] * 4
    assert _eta_s(started, lasted, states, left=7) == pytest.approx(60.0)
