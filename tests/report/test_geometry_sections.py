"""The sections on what the data can tell apart, and on whether that came true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ablate.report.blocks import Picture, Section, Table
from ablate.report.build import traced
from ablate.report.evidence import Evidence
from ablate.report.geometry_sections import MOST_PAIRS
from ablate.report.render import Head, html_page
from ablate.report.sections import SECTIONS
from tests.simulated_study import EFFECTS, PRIMARY, WEIGHTS, FakeStudy, simulate_study

DISTANCES = {arm: abs(effect) for arm, effect in EFFECTS.items()}


def facts(**changes: Any) -> dict[str, Any]:
    point = {
        "change": "",
        "cosines": [[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]],
        "singular_values": [1.5, 0.8, 0.0],
        "effective_rank": 1.9,
        "variance_inflation": [None, None, 1.33],
        "groups": [["a_loss", "b_loss"], ["c_loss"]],
    }
    other = point | {"change": "token_weight_alpha=2", "effective_rank": 1.7}
    return {
        "terms": ["a_loss", "b_loss", "c_loss"],
        "weights": list(WEIGHTS[:3]),
        "points": [point, other],
        "tokens": 100,
        "examples": 20,
        "threshold": 0.95,
        "same_training": [],
        "together": [[f"reconstruction.{name}" for name in WEIGHTS[:2]]],
    } | changes


def study(distances: dict[str, float] = DISTANCES, found: dict[str, Any] | None = None, **options: Any) -> FakeStudy:
    """A simulated study whose arms have coordinates."""
    made = simulate_study(seeds=6, diagnostics=0, steps=2, **options)
    distance = made.trials_frame["arm"].map(distances)
    columns = {"scale": 1.0, "beta_eff": 1.0, "effective_token_count": 90.0, "distance": distance}
    columns |= {"direction_1": 1.0 + distance, "direction_2": -distance, "outside": 0.0}
    coordinates = pd.DataFrame(columns, index=made.trials_frame.index).add_prefix("canonical.")
    made.trials_frame = pd.concat([made.trials_frame, coordinates], axis=1)
    made.facts = {**made.facts, "geometry": facts() if found is None else found}
    return made


def section(made: FakeStudy, key: str) -> Section:
    evidence = Evidence(made.spec, made.trials(), made.curves(), None, made.facts, Path(), "now")
    return SECTIONS[key](evidence)


def said(made: Section) -> list[str]:
    return [str(sentence) for sentence in made.sentences]


def test_geometry() -> None:
    made = section(study(), "geometry")
    assert said(made) == [
        "The weight matrices of the 3 terms, known from the reference alone, have an effective rank of 1.90: about so "
        "many directions can be told apart over 100 training tokens of 20 examples.",
        "Cannot be told apart: raw_weight, distribution_normalized_weight: every cosine is at least 0.95, so left out "
        "one at a time each can look droppable because the others stay.",
        "To paste: `together: [[reconstruction.raw_weight, reconstruction.distribution_normalized_weight]]` moves each "
        "such group as one.",
    ]
    pictures = [block.name for block in made.blocks if isinstance(block, Picture)]
    assert pictures == ["term-cosines", "term-spectrum", "arms-in-plane"]
    inflation = next(block for block in made.blocks if isinstance(block, Table) and block.name == "variance_inflation")
    assert [row[1].text for row in inflation.rows] == ["∞", "∞", "1.33"]
    settings = next(block for block in made.blocks if isinstance(block, Table) and block.name == "term_range")
    assert [row[0].text for row in settings.rows] == ["baseline", "token_weight_alpha=2"]
    assert [row[2].text for row in settings.rows] == ["{1 2} {3}"] * 2


def test_arms_that_are_one_training_are_remarks() -> None:
    pairs = [{"arms": ["-raw_weight", "aa-1"], "distance": 0.0, "sentence": f"pair {i}"} for i in range(MOST_PAIRS + 2)]
    remarks = section(study(found=facts(same_training=pairs)), "geometry").remarks
    assert remarks[0] == "pair 0."
    assert len(remarks) == MOST_PAIRS + 1
    assert remarks[-1] == "2 more pairs of arms are one training."


def test_a_study_without_coordinates_says_how_to_get_them() -> None:
    made = simulate_study(seeds=6, diagnostics=0, steps=2)
    for key in ("geometry", "prediction"):
        assert section(made, key).absent == (
            "the workload has no term geometry, or it was not measured (`ablate terms FILE` measures it)"
        )


def test_a_prediction_that_came_true() -> None:
    """Distances that are the true effects of the arms that change the objective alone."""
    [held, *rest] = said(section(study(noise_sd=0.001), "prediction"))
    assert held.startswith("Held: distance and measured effect: Spearman's ρ ")
    assert held.endswith(" over 10 arms; arms predicted to be farther from the baseline differ more.")
    assert rest == []  # β_eff is the same in all: it predicts nothing


def test_a_prediction_that_failed_is_said_to_have_failed() -> None:
    wrong = {arm: 0.2 - distance for arm, distance in DISTANCES.items()}
    [failed, *_] = said(section(study(wrong, noise_sd=0.001), "prediction"))
    assert failed.startswith("Failed: distance and measured effect: Spearman's ρ −")
    assert failed.endswith("the prediction failed: arms predicted to be nearer differ more.")


def test_an_arm_that_was_predicted_to_be_the_baseline_and_is_not() -> None:
    found = said(section(study(DISTANCES | {"-raw_weight": 0.0}), "prediction"))
    assert any(
        s.startswith("Failed: -raw_weight is predicted to be the baseline's training, yet differs by 0.0")
        for s in found
    )
    assert not any("-distribution_normalized_weight is" in s for s in found)  # its effect is 0, as predicted


def test_a_pair_that_was_predicted_to_be_one_training_and_is_not() -> None:
    pairs = [
        {"arms": ["-raw_weight", "-token_weighted_weight"], "distance": 0.0, "sentence": ""},
        {
            "arms": ["-distribution_normalized_weight", "-example_inverse_surprisal_weight"],
            "distance": 0,
            "sentence": "",
        },
    ]
    found = [s for s in said(section(study(found=facts(same_training=pairs)), "prediction")) if "one training" in s]
    [sentence] = found
    assert sentence.startswith(
        f"Failed: -raw_weight and -token_weighted_weight are predicted to be one training, yet {PRIMARY} differs by 0.1"
    )


def test_few_arms_decide_nothing() -> None:
    few = {arm: EFFECTS[arm] for arm in ("baseline", "-raw_weight", "-example_inverse_surprisal_weight")}
    [sentence] = said(section(study(effects=few), "prediction"))
    assert sentence.startswith("Open: distance and measured effect")
    assert sentence.endswith("over 2 arms; fewer than 5 arms have no interval.")


@pytest.mark.parametrize("state", ["WAITING", "died"])
def test_before_anything_is_finished(state: str) -> None:
    ends = {(arm, seed): state for arm in EFFECTS for seed in range(6)}
    made = study(failures=ends)
    assert section(made, "prediction").absent == "the primary metric has no value yet"
    assert not section(made, "geometry").absent


def test_a_cell_that_names_an_arm_has_its_coordinates_as_a_tip() -> None:
    made = study()
    evidence = Evidence(made.spec, made.trials(), made.curves(), None, made.facts, Path(), "now")
    arms = traced(SECTIONS["arms"](evidence), evidence.anchors, evidence.tips)
    assert (
        'title="-raw_weight: β_eff 1.000, scale 1.000, 90.00 effective tokens, distance from the baseline 0.0600, '
        'direction (1.06, −0.0600)"'
    ) in html_page(Head("t", "", ""), [arms], {})


def test_one_term_alone_has_a_plane_of_no_direction() -> None:
    made = study()
    made.trials_frame = made.trials_frame.drop(columns="canonical.direction_2")
    pictures = [block.name for block in section(made, "geometry").blocks if isinstance(block, Picture)]
    assert pictures == ["term-cosines", "term-spectrum"]
    assert np.isfinite(made.trials_frame["canonical.distance"]).all()
