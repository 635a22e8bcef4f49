"""Gradients of the terms, beside what their weight matrices predict."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ablate.analysis.gradient_geometry import gradient_cosines, gradient_pairs
from ablate.report.blocks import Picture, Section, Table
from ablate.report.evidence import Evidence
from ablate.report.sections import SECTIONS
from tests.report.test_geometry_sections import facts
from tests.simulated_study import WEIGHTS, FakeStudy, simulate_study

PAIRS = list(combinations(WEIGHTS[:3], 2))
MEASURED = dict(zip(PAIRS, (1.0, 0.6, 0.4), strict=True))


@pytest.fixture
def made() -> FakeStudy:
    """A study whose baseline measured the gradients of three terms, first at 0.9 and in the end at MEASURED."""
    study = simulate_study(seeds=4, diagnostics=0, steps=2)
    base = study.trials_frame["arm"] == "baseline"
    rows = []
    for (first, second), value in MEASURED.items():
        name = f"gradient_cosine/{first}/{second}"
        spread = 0.01 * study.trials_frame["seed"]
        study.trials_frame[f"metric.{name}"] = np.where(base, value + spread, np.nan)
        for row in study.trials_frame.loc[base].to_dict("records"):
            rows += [(row["trial_id"], 0, name, 0.9), (row["trial_id"], 1000, name, value)]
    own = pd.DataFrame(rows, columns=["trial_id", "step", "metric", "value"])
    study.curves_frame = pd.concat([study.curves_frame, own], ignore_index=True)
    study.facts = {**study.facts, "geometry": facts()}
    return study


def section(study: FakeStudy) -> Section:
    evidence = Evidence(study.spec, study.trials(), study.curves(), None, study.facts, Path(), "now")
    return SECTIONS["gradients"](evidence)


def test_the_table_holds_both(made: FakeStudy) -> None:
    assert gradient_pairs(made.trials_frame) == PAIRS
    table = gradient_cosines(made.trials_frame, made.curves_frame)
    assert list(table["start"]) == pytest.approx([0.9] * 3)
    assert list(table["mean"]) == pytest.approx([value + 0.015 for value in MEASURED.values()])
    assert list(table["n"]) == [4] * 3


def test_the_section(made: FakeStudy) -> None:
    found = section(made)
    assert [str(sentence) for sentence in found.sentences] == [
        "At the last evaluation of the baseline the cosines of the parameter gradients differ from those of the "
        "weight matrices by 0.072 on average, most for raw_weight and example_inverse_surprisal_weight (0.61, "
        "predicted 0.50); over the 3 pairs their ranks agree with Spearman's ρ 0.87."
    ]
    assert [block.name for block in found.blocks if isinstance(block, Picture)] == ["gradient-cosines"]
    table = next(block for block in found.blocks if isinstance(block, Table))
    assert [cell.text for cell in table.rows[1]] == ["raw_weight", "0.500", "0.900", "0.615"]
    made.facts = {}
    assert section(made).sentences == ()  # nothing was predicted


def test_what_was_not_measured_is_said() -> None:
    study = simulate_study(seeds=2, diagnostics=0, steps=1)
    end = "(`metrics: {gradient_cosines: true}` measures them)"
    assert section(study).absent == f"not asked for {end}"
    asked = study.spec.metrics.model_copy(update={"gradient_cosines": True})
    study.spec = replace(study.spec, metrics=asked)
    assert section(study).absent == f"no trial of the baseline has finished with them {end}"
