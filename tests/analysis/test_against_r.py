"""The analysis gives what R gives; `golden/reference.R` holds the data, the code and the command."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ablate.analysis import contrasts
from ablate.analysis.beside import paired_tests
from ablate.analysis.effects import effects
from ablate.analysis.variance import variance_components

DATA = {
    "baseline": [2.131, 2.054, 2.192, 2.088, 2.147, 2.011, 2.163, 2.099],
    "-a": [2.190, 2.101, 2.260, 2.139, 2.214, 2.052, 2.233, 2.158],
    "-b": [2.128, 2.061, 2.187, 2.094, 2.143, 2.019, 2.160, 2.101],
    "-c": [2.119, 2.066, 2.170, 2.101, 2.151, 1.998, 2.184, 2.071],
}
REFERENCE = pd.read_csv(Path(__file__).parent / "golden" / "reference.csv", keep_default_na=False)
EFFECTS = ["difference", "low", "high", "d_z", "g_av", "correlation"]
BESIDE = ["t", "p_t", "p_t_holm", "p_t_bh", "p_tost"]


@pytest.fixture(scope="module")
def trials() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "trial_id": f"{arm}/{seed}",
                "arm": arm,
                "seed": seed,
                "replicate": 0,
                "designs": "leave_one_out",
                "state": "COMPLETE",
                "reason": "",
                "metric.eval/x": value,
            }
            for arm, values in DATA.items()
            for seed, value in enumerate(values)
        ]
    )


def expected(arm: str, name: str) -> object:
    value = REFERENCE.loc[(REFERENCE["arm"] == arm) & (REFERENCE["name"] == name), "value"]
    return pytest.approx(float(value.item()), rel=1e-9)


@pytest.mark.parametrize("arm", ["-a", "-b", "-c"])
def test_effects_tests_and_intervals(trials: pd.DataFrame, arm: str) -> None:
    effect = effects(trials, metric="eval/x", goal="minimize").set_index("arm").loc[arm]
    beside = paired_tests(trials, metric="eval/x", sesoi=0.02).set_index("arm").loc[arm]
    contrast = contrasts(trials, metric="eval/x", goal="minimize", sesoi=0.02).set_index("arm").loc[arm]
    assert {name: effect[name] for name in EFFECTS} == {name: expected(arm, name) for name in EFFECTS}
    assert {name: beside[name] for name in BESIDE} == {name: expected(arm, name) for name in BESIDE}
    assert contrast["p_value"] == expected(arm, "p_value")
    assert contrast["p_adjusted"] == expected(arm, "p_adjusted")
    assert contrast["low"] == expected(arm, "low_simultaneous")
    assert contrast["high"] == expected(arm, "high_simultaneous")


def test_variance_components(trials: pd.DataFrame) -> None:
    table = variance_components(trials, metric="eval/x").set_index("source")["variance"]
    assert table["arm"] == expected("all", "variance_arm")
    assert table["seed"] == expected("all", "variance_seed")
    assert table["arm x seed"] == expected("all", "variance_rest")
