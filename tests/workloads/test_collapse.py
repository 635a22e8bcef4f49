"""A real training whose KL weighs too much collapses, and the report's table says why."""

import pandas as pd
import pytest

from ablate.analysis.collapse import collapse
from ablate.workloads.contract import Trial
from ablate.workloads.synthetic_sequences.workload import train
from tests.workloads.conftest import tiny


@pytest.mark.parametrize("latent", ["continuous", pytest.param("discrete", marks=pytest.mark.campaign)])
def test_a_high_beta_collapses_and_is_named(shared_dir, latent):
    rows, curves = [], []
    weights = {name: 0.0 for name in tiny()["reconstruction"] if name.endswith("_weight")} | {"raw_weight": 1.0}
    for arm, beta in (("baseline", 0.1), ("beta=50", 50.0)):
        config = tiny(
            latent=latent,
            reconstruction=weights,
            kl={"beta": beta},
            model={"token_dropout": 0.5},
            training={"steps": 100, "learning_rate": 0.02},
        )
        trial = Trial(seed=0, shared_dir=shared_dir, evaluation={"every": 0.25, "iwae_samples": 2, "iwae_examples": 4})
        final = train(config, trial)
        rows.append(
            {"trial_id": arm, "arm": arm, "seed": 0, "state": "COMPLETE", "config.kl.beta": beta}
            | {f"metric.{name}": value for name, value in final.items()}
        )
        curves += [(arm, row.step, name, value) for row in trial.rows for name, value in row.metrics.items()]
    frame = pd.DataFrame(curves, columns=["trial_id", "step", "metric", "value"])
    table = collapse(pd.DataFrame(rows), frame, tiny(latent=latent, kl={"beta": 0.1})).set_index("arm")
    assert table["collapsed"].to_dict() == {"baseline": 0, "beta=50": 1}
    assert table.loc["beta=50", "setting"] == "kl.beta"
    assert "β_eff is 50 instead of 0.1" in table.loc["beta=50", "reason"]
