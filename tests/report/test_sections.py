"""The sections that need more than a leave-one-out, on designed studies with known truths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ablate.report.blocks import Picture, Table, file_stem
from ablate.report.evidence import Evidence
from ablate.report.sections import SECTIONS, make_sections
from ablate.report.wording import verdict_sentence
from ablate.spec.models import Metric, Metrics
from tests.designed_trials import METRIC, designed_trials, full_factorial
from tests.simulated_study import empty_curves, simulate_study, study_spec


def evidence_of(trials: pd.DataFrame, **spec: object) -> Evidence:
    metrics = Metrics(primary=Metric(name=METRIC, goal="minimize", sesoi=0.1))
    return Evidence(study_spec(8, metrics=metrics, **spec), trials, empty_curves(), None, {}, Path(), "now")


@pytest.fixture(scope="module")
def designed() -> Evidence:
    """A full factorial over three weights, a range of alpha, and a search over both."""
    rng = np.random.default_rng(0)
    arms = {label: {f"w.{p}": v for p, v in c.items()} | {"alpha": 1.0} for label, c in full_factorial("abc").items()}
    designs = dict.fromkeys(arms, "factorial") | {"baseline": "baseline"}
    for alpha in (0.0, 0.5, 2.0):
        arms[f"alpha={alpha}"] = arms["baseline"] | {"alpha": alpha}
        designs[f"alpha={alpha}"] = "one_at_a_time"
    for index in range(20):
        arms[f"search-1/{index}"] = {f"w.{p}": float(rng.random()) for p in "abc"} | {"alpha": float(rng.random())}
        designs[f"search-1/{index}"] = "search-1"
    trials = designed_trials(
        arms, lambda c: 2 - c["w.a"] - 0.5 * c["w.b"] + 0.3 * (c["alpha"] - 1) ** 2, noise=0.02, designs=designs
    )
    return evidence_of(trials)


def section(evidence: Evidence, key: str) -> object:
    return SECTIONS[key](evidence)


@pytest.mark.parametrize(
    ("key", "pictures", "says"),
    [
        ("factorial", ["interactions-factorial"], "none of 3 pairwise interactions can be told from 0."),
        ("shapley", ["shapley"], "terms that do the same work share it"),
        ("doses", ["dose-alpha"], "Bands are simultaneous"),
        ("importance", ["importance-ped_anova", "importance-fanova"], "told from noise: a"),
        ("weights", ["parallel-weights"], ""),
    ],
)
def test_a_designed_study_has_the_section(designed: Evidence, key: str, pictures: list[str], says: str) -> None:
    made = SECTIONS[key](designed)
    assert not made.absent
    assert [block.name for block in made.blocks if isinstance(block, Picture)] == pictures
    assert says in " ".join(str(sentence) for sentence in made.sentences)


def test_factors_go_by_their_short_names(designed: Evidence) -> None:
    table = next(block for block in SECTIONS["factorial"](designed).blocks if isinstance(block, Table))
    assert list(table.frame["term"]) == ["a", "b", "c", "a × b", "a × c", "b × c"]


def test_what_a_study_has_nothing_for_is_one_list() -> None:
    study = simulate_study(seeds=6, effects={"baseline": 0.0, "-raw_weight": 0.1}, diagnostics=0, steps=1)
    evidence = Evidence(study.spec, study.trials(), study.curves(), None, {}, Path(), "now")
    made = make_sections(evidence)
    listed = next(section for section in made if section.key == "absent")
    assert {sentence.lead for sentence in listed.sentences} == {
        "Controls",
        "Diagnostics of the token weighting",
        "Samples",
        "What the data can tell apart",
        "Predicted against measured",
        "Gradients of the terms",
        "Main effects and interactions",
        "Shapley values of the terms",
        "Dose-response",
        "Importance of the factors",
        "Configurations and outcomes",
        "Looks at the outcomes",
    }
    assert all(sentence.text[-1] == "." for sentence in listed.sentences)


def test_three_levels_in_a_grid_are_a_sentence() -> None:
    arms = {"baseline": {"a": 1.0}, "a=2": {"a": 2.0}, "a=3": {"a": 3.0}}
    made = SECTIONS["factorial"](evidence_of(designed_trials(arms, lambda c: c["a"])))
    assert [str(sentence) for sentence in made.sentences] == [
        "grid: a takes 2 values beside the baseline's; two levels are needed."
    ]


def test_vary_says_what_the_intervals_hold_for() -> None:
    from ablate.spec.models import Seeds

    trials = simulate_study(seeds=6, effects={"baseline": 0.0, "-raw_weight": 0.1}, diagnostics=0, steps=1).trials()
    study = simulate_study(seeds=6, effects={"baseline": 0.0}, diagnostics=0, steps=1)

    def closing(vary: tuple[str, ...]) -> str:
        spec = study_spec(6, seeds=Seeds(count=6, vary=vary))
        evidence = Evidence(spec, trials, study.curves(), None, {}, Path(), "now")
        return " ".join(str(sentence) for sentence in SECTIONS["verdicts"](evidence).sentences)

    assert "conditional on one data set, one split and one reference: " in closing(("training",))
    assert "conditional on one split: " in closing(("training", "data", "reference"))
    assert "they hold for the population these are drawn from" in closing(("data", "split", "reference"))


def test_a_flagged_control_is_a_remark() -> None:
    effects = {"baseline": 0.0, "-raw_weight": 0.1, "aa-1": 0.2}
    study = simulate_study(seeds=6, effects=effects, diagnostics=0, steps=1)
    evidence = Evidence(study.spec, study.trials(), study.curves(), None, {}, Path(), "now")
    assert any(remark.startswith("The A/A arm aa-1 was flagged: ") for remark in SECTIONS["verdicts"](evidence).remarks)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            {"arm": "-a, -b", "n_pairs": 8, "difference": 0.05, "low": 0.04, "high": 0.06, "verdict": "needed",
             "reason": "", "significant": True},
            "Needed: removing a and b raises m by 0.0500 (worse), [+0.040, +0.060] over 8 seeds; the whole interval "
            "is worse by more than 0.02.",
        ),
        (
            {"arm": "mode=mean", "n_pairs": 8, "difference": -0.001, "low": -0.011, "high": 0.009,
             "verdict": "equivalent", "reason": "", "significant": False},
            "Equivalent: mode=mean lowers m by 0.00100 (better), [−0.011, +0.009] over 8 seeds; the whole interval "
            "lies within ±0.02, too small to matter.",
        ),
        (
            {"arm": "-a", "n_pairs": 5, "difference": 0.05, "low": -np.inf, "high": np.inf, "verdict": "undecided",
             "reason": "too few seeds", "significant": False},
            "Undecided: removing a raises m by 0.0500 (worse), no interval over 5 seeds; too few seeds (six common "
            "seeds are the least that can decide).",
        ),
        (
            {"arm": "-a", "n_pairs": 7, "difference": 0.0, "low": -0.1, "high": 0.1, "verdict": "undecided",
             "reason": "diverged 1/8", "significant": False},
            "Undecided: removing a leaves m exactly where it was, [−0.10, +0.10] over 7 seeds; diverged 1/8 trials, "
            "and how they are counted changes the verdict.",
        ),
    ],
)  # fmt: skip
def test_sentences(row: dict[str, object], sentence: str) -> None:
    assert str(verdict_sentence(row, "m", "minimize", 0.02)) == sentence


def test_terms_that_move_together_are_named_together() -> None:
    group = ("reconstruction.raw_weight", "reconstruction.distribution_normalized_weight")
    study = simulate_study(
        seeds=6, effects={"baseline": 0.0, "-raw_weight": 0.1}, diagnostics=0, steps=1, together=(group,)
    )
    evidence = Evidence(study.spec, study.trials(), study.curves(), None, {}, Path(), "now")
    sentences = [str(sentence) for sentence in SECTIONS["verdicts"](evidence).sentences]
    assert any(
        s.startswith("Needed: removing raw_weight (with distribution_normalized_weight) raises") for s in sentences
    )


def test_file_names_are_safe_and_short() -> None:
    assert file_stem("secondary-eval/mig") == "secondary-eval-mig"
    assert file_stem("../../etc/passwd") == "etc-passwd"
    assert len(file_stem("x" * 400)) == 80
    assert file_stem("x" * 400) != file_stem("x" * 401)
