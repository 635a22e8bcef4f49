import pytest

from ablate.run.status import pace


@pytest.mark.parametrize(
    ("ended", "seconds"),
    [
        ([(0.0, 10.0)], 10.0),
        ([(0.0, 10.0), (10.0, 10.0)], 10.0),
        ([(0.0, 10.0), (0.0, 10.0), (5.0, 10.0), (100.0, 5.0)], 5.0),  # a pack of two, one beside it, one much later
        ([(0.0, 10.0), (2.0, 3.0)], 5.0),
    ],
)
def test_trials_that_ran_together_share_their_time(ended, seconds):
    assert pace(ended) == seconds
