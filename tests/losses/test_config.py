import dataclasses
import math
import pickle

import numpy as np
import pytest
import torch

from losses.config import BetaSchedule, ReconstructionLossConfig, TemperatureSchedule
from tests.losses.oracle import SIX_TERMS


def test_defaults():
    assert dataclasses.asdict(ReconstructionLossConfig()) == {
        **dict.fromkeys(SIX_TERMS.values(), 1.0),
        "token_weight_alpha": 1.0,
        "example_inverse_surprisal_epsilon": 0.1,
        "inverse_surprisal_token_weight_epsilon": 0.1,
        "zfree_reference_scale": 1.0,
        "token_aggregation": "token_sum",
    }


def test_it_is_a_plain_value():
    config = ReconstructionLossConfig(raw_weight=2.0)
    assert config == pickle.loads(pickle.dumps(config))
    assert hash(config) == hash(ReconstructionLossConfig(raw_weight=2.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.raw_weight = 1.0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("raw_weight", -1.0, "raw_weight: got -1.0; allowed: a finite number >= 0"),
        ("token_weighted_weight", math.nan, "token_weighted_weight: got nan; allowed: a finite number >= 0"),
        ("raw_weight", math.inf, "raw_weight: got inf; allowed: a finite number >= 0"),
        ("raw_weight", "1", "raw_weight: got '1'; allowed: a finite number >= 0"),
        ("raw_weight", True, "raw_weight: got True; allowed: a finite number >= 0"),
        ("raw_weight", None, "raw_weight: got None; allowed: a finite number >= 0"),
        ("token_weight_alpha", 100.5, "token_weight_alpha: got 100.5; allowed: a finite number >= 0 and <= 100"),
        (
            "inverse_surprisal_token_weight_epsilon",
            0.0,
            "inverse_surprisal_token_weight_epsilon: got 0.0; allowed: a finite number > 0",
        ),
        ("zfree_reference_scale", 0, "zfree_reference_scale: got 0; allowed: a finite number > 0"),
        (
            "token_aggregation",
            "token_sums",
            "token_aggregation: got 'token_sums'; allowed: token_mean, token_sum; did you mean 'token_sum'?",
        ),
        ("token_aggregation", 3, "token_aggregation: got 3; allowed: token_mean, token_sum"),
        ("token_aggregation", [], "token_aggregation: got []; allowed: token_mean, token_sum"),
    ],
)
def test_a_value_out_of_range_is_refused(field, value, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        ReconstructionLossConfig(**{field: value})
    assert str(caught.value) == f"ReconstructionLossConfig: {message}"


def test_every_problem_is_named_at_once():
    with pytest.raises(ValueError, match=r"raw_weight.*\n.*token_weight_alpha.*\n.*token_aggregation"):
        ReconstructionLossConfig(raw_weight=-1, token_weight_alpha=-1, token_aggregation="sum")


def test_numbers_of_other_types_are_taken():
    config = ReconstructionLossConfig(raw_weight=1, token_weight_alpha=np.float32(0.5))
    assert (config.raw_weight, config.token_weight_alpha) == (1, 0.5)


def test_tensors_are_not_checked():
    assert ReconstructionLossConfig(raw_weight=torch.tensor(-1.0)).raw_weight == -1.0


@pytest.mark.parametrize(
    ("schedule", "settings", "message"),
    [
        (BetaSchedule, {"beta": -1}, "BetaSchedule: beta: got -1; allowed: a finite number >= 0"),
        (BetaSchedule, {"warmup_steps": 0}, "BetaSchedule: warmup_steps: got 0; allowed: a finite number >= 1"),
        (BetaSchedule, {"cycle_ramp": 1.5}, "BetaSchedule: cycle_ramp: got 1.5; allowed: a finite number > 0 and <= 1"),
        (
            BetaSchedule,
            {"schedule": "cyclic"},
            "BetaSchedule: schedule: got 'cyclic'; "
            "allowed: constant, cyclical, linear_warmup; did you mean 'cyclical'?",
        ),
        (TemperatureSchedule, {"minimum": 0}, "TemperatureSchedule: minimum: got 0; allowed: a finite number > 0"),
    ],
)
def test_schedules_are_checked(schedule, settings, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        schedule(**settings)
    assert str(caught.value) == message
