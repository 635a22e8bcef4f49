"""A study of the built-in workload has the same numbers in packs and without."""

import pandas as pd
import pytest

from ablate import open_study
from tests.integration.test_built_in import STUDY

pytestmark = pytest.mark.slow


@pytest.mark.campaign
@pytest.mark.parametrize("latent", ["continuous", "discrete"])
def test_packs_change_no_number(place, latent):
    place.write(STUDY.format(latent=latent))
    found = {}
    for size in (1, 4):
        place.ablate("run", "study.yaml", "--runs", f"packs-of-{size}", "--set", f"run.pack={size}")
        study = open_study(place.path / f"packs-of-{size}" / "toy")
        curves = study.curves().query("not metric.str.startswith('time/')")
        found[size] = curves.sort_values(["trial_id", "metric", "step"], ignore_index=True), study.trials()
    pd.testing.assert_frame_equal(found[1][0], found[4][0], check_exact=True)
    timed = ["started", "duration_s", "mlflow_run_id", "metric.time/step_s"]
    pd.testing.assert_frame_equal(*(trials.drop(columns=timed) for _, trials in found.values()), check_exact=True)
