"""A study whose arms come from the geometry of its terms, as the command runs it."""

import json

import pytest

from losses.reconstruction import TERMS

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

STUDY = """
study: toy
workload: synthetic_sequences
baseline:
  data: {examples: 128, select_examples: 64, report_examples: 64}
  reference: {steps: 40}
  training: {steps: 6, batch_size: 32}
factors:
  reconstruction.*_weight: {ablate_to: 0}
designs:
  - leave_group_out: auto
  - search: {over: canonical, trials: 2, seeds: 1}
seeds: {count: 2}
metrics:
  primary: {name: eval/neg_elbo_per_token, sesoi: 0.02}
  gradient_cosines: true
evaluation: {every: 0.5, iwae_samples: 4, iwae_examples: 16}
"""


def test_groups_and_directions_of_the_data_become_arms(place):
    place.write(STUDY)
    assert "its groups come from the reference table" in place.ablate("plan", "study.yaml")[0]
    place.ablate("run", "study.yaml")
    study = place.study()
    groups = study.geometry.points[0].terms.groups
    trials = study.trials()
    assert (trials["state"] == "COMPLETE").all()
    left_out = trials.loc[trials["designs"].str.contains("leave_group_out"), "arm"].unique()
    assert len(left_out) == len(groups) < len(TERMS)
    proposed = trials.loc[trials["arm"].str.startswith("search-1/")]
    assert proposed["arm"].nunique() == 2
    base = trials.loc[trials["arm"] == "baseline"]
    assert set(proposed["canonical.beta_eff"]) == set(base["canonical.beta_eff"])  # shares keep the scale
    assert (proposed["canonical.distance"] > 0).all()
    measured = [name for name in trials if name.startswith("metric.gradient_cosine/")]
    assert len(measured) == 15
    assert base[measured].notna().all(axis=None)
    assert trials.loc[trials["arm"] != "baseline", measured].isna().all(axis=None)
    page = (place.path / "runs" / "toy" / "report" / "index.html").read_text()
    assert "What the data can tell apart" in page
    assert "Gradients of the terms" in page
    _, said = place.ablate("run", "study.yaml")
    assert "every trial is recorded; nothing to run" in said
    found = json.loads(place.ablate("plan", "study.yaml", "--json")[0])
    assert [arm["arm"] for arm in found["geometry"]["arms"] if "distance" not in arm] == []
    assert all(trial["state"] == "COMPLETE" for trial in found["trials"])
