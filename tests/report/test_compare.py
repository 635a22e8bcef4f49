"""Several studies side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablate.analysis.compare import compare
from ablate.errors import SpecError
from ablate.report.compare import build_comparison, compare_text
from ablate.spec.models import Metric, Metrics
from tests.simulated_study import PRIMARY, FakeStudy, simulate_study

ARMS = {"baseline": 0.0, "-raw_weight": 0.06, "token_aggregation=token_mean": 0.02, "aa-1": 0.0}


def named(name: str, rng_seed: int, effects: dict[str, float] | None = None) -> FakeStudy:
    return simulate_study(effects=effects or ARMS, diagnostics=0, steps=1, rng_seed=rng_seed, study=name)


def test_pooled_values_equal_the_textbook_formulas() -> None:
    """Fixed effect, Q and I^2 by hand from each study's difference and squared standard error."""
    studies = {"one": named("one", 1).trials(), "two": named("two", 2).trials(), "three": named("three", 3).trials()}
    found = compare(studies, metric=PRIMARY)
    row = found.pooled.set_index("arm").loc["-raw_weight"]
    y, v = [], []
    for trials in studies.values():
        wide = trials.pivot_table(index="seed", columns="arm", values=f"metric.{PRIMARY}")
        d = (wide["-raw_weight"] - wide["baseline"]).to_numpy()
        y.append(d.mean())
        v.append(d.var(ddof=1) / len(d))
    w = 1 / np.array(v)
    mean = float((w * y).sum() / w.sum())
    q = float((w * (np.array(y) - mean) ** 2).sum())
    assert row["difference"] == pytest.approx(mean)
    assert row["high"] - row["difference"] == pytest.approx(stats.t.ppf(0.975, 21) / np.sqrt(w.sum()))
    assert row["q"] == pytest.approx(q)
    assert row["i_squared"] == pytest.approx(max(0.0, 1 - 2 / q))


def test_studies_that_disagree_are_said_to() -> None:
    other = ARMS | {"-raw_weight": -0.06}
    text = compare_text([named("continuous", 1), named("discrete", 2, other)])
    said = next(line for line in text.splitlines() if line.startswith("The studies disagree on "))
    assert "-raw_weight" in said
    assert said.endswith(" (p of Q below 0.1): read each study's own.")
    lines = text.splitlines()
    assert lines[2].split() == ["arm", "continuous", "discrete", "pooled", "heterogeneity"]
    assert [line.split()[0] for line in lines[3:5]] == ["-raw_weight", "token_aggregation=token_mean"]


def test_an_arm_of_one_study_is_listed_and_not_pooled() -> None:
    lone = {"baseline": 0.0, "-token_weighted_weight": 0.1}
    text = compare_text([named("one", 1), named("two", 2, lone)])
    assert "No arm has finished pairs in two of one, two: nothing to pool." in text
    assert "-token_weighted_weight" in text


def test_what_can_not_be_compared_is_refused() -> None:
    with pytest.raises(SpecError, match=r"^compare: one is named twice; studies are told apart by name$"):
        compare_text([named("one", 1), named("one", 2)])
    other = dataclasses.replace(named("two", 2).spec, metrics=Metrics(primary=Metric(name=PRIMARY, goal="maximize")))
    study = dataclasses.replace(named("two", 2), spec=other)
    with pytest.raises(SpecError, match=f"^compare: two would maximize {PRIMARY}, one minimize it"):
        compare_text([named("one", 1), study])
    without = dataclasses.replace(
        named("two", 2), trials_frame=named("two", 2).trials().drop(columns=f"metric.{PRIMARY}")
    )
    with pytest.raises(SpecError, match=f"^compare: two has no {PRIMARY}, the primary metric of one"):
        compare_text([named("one", 1), without])


def test_the_comparison_is_a_report(tmp_path: Path) -> None:
    page = build_comparison([named("continuous", 1), named("discrete", 2)], tmp_path / "compare")
    assert page.name == "index.html"
    assert (tmp_path / "compare" / "figures" / "studies.svg").exists()
    table = pd.read_csv(tmp_path / "compare" / "tables" / "pooled.csv")
    assert list(table["arm"]) == ["-raw_weight", "token_aggregation=token_mean"]
