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
from ablate.spec.models import Confirm, Design, Metric, Metrics, Objective, SearchSettings, Seeds
from tests.analysis.test_search import REPORT, SELECT, drawn_anew, rows
from tests.analysis.test_search import study as search_study
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


SEARCH = Design(
    "search", "search-1", ("x",),
    search=SearchSettings("tpe", 64, (Objective(name=SELECT),), seeds=1, confirm=Confirm(top=2, seeds=8)),
)  # fmt: skip


def searched() -> Evidence:
    metrics = Metrics(primary=Metric(name=REPORT, goal="minimize", sesoi=0.5))
    trials = search_study().assign(**{"config.x": 1.0})
    return Evidence(study_spec(4, metrics=metrics, designs=(SEARCH,)), trials, empty_curves(), None, {}, Path(), "now")


def test_a_search_says_that_its_best_is_no_result() -> None:
    made = SECTIONS["searches"](searched())
    said = " ".join(str(sentence) for sentence in made.sentences)
    assert "search-1: 64 arms of its own proposed by tpe for select/loss, mean over 1 seed each: 64 complete." in said
    assert "looks better than it is" in said
    assert [block.name for block in made.blocks] == ["progress-search-1-loss", "search-1-loss"]
    assert len(made.blocks[1].rows) == 10
    assert len(made.blocks[1].frame) == 64


def test_winners_stand_beside_what_is_left_of_them() -> None:
    made = SECTIONS["confirmation"](searched())
    said = " ".join(str(sentence) for sentence in made.sentences)
    assert "search-1: the best of 64 looked −" in said
    assert "Of 64 arms that are all the same, the best by one seed each would look 2.3 SDs of a trial better" in said
    assert [block.name for block in made.blocks] == ["shrinkage-1", "confirm-1"]
    assert [row[2].sub for row in made.blocks[1].rows] == ["1 seed", "1 seed"]


def test_effects_over_drawn_data_have_an_interval_for_the_next() -> None:
    metrics = Metrics(primary=Metric(name=REPORT, goal="minimize", sesoi=0.5))
    spec = study_spec(12, metrics=metrics, seeds=Seeds(count=12, vary=("training", "data")))
    evidence = Evidence(spec, drawn_anew(0), empty_curves(), None, {}, Path(), "now")
    made = SECTIONS["new-data"](evidence)
    assert "Each seed draws data anew" in str(made.sentences[0])
    (row,) = made.blocks[1].rows
    assert row[0].text == "-a"
    assert row[-1].text == "12"


def test_what_was_tuned_is_listed_by_arm() -> None:
    tuned = Design("nuisance", "nuisance", ("lr",), search=SearchSettings("tpe", 2, (Objective(name=SELECT),), seeds=2))
    trials = pd.DataFrame(
        [
            *rows("baseline", [0], [1.0], [1.0], designs="baseline"),
            *rows("tune/baseline/0", [10, 11], [1.0, 1.0], [1.0, 1.0], designs="nuisance"),
            *rows("tune/baseline/1", [10, 11], [2.0, 2.0], [1.0, 1.0], designs="nuisance"),
        ]
    ).assign(**{"config.lr": 0.125})
    evidence = Evidence(study_spec(1, nuisance=tuned), trials, empty_curves(), None, {}, Path(), "now")
    made = SECTIONS["nuisance"](evidence)
    assert "2 settings an arm, the same budget for each, chosen by select/loss on 2 tuning seeds" in str(
        made.sentences[0]
    )
    assert [[cell.text for cell in row] for row in made.blocks[0].rows] == [["baseline", "2", "0.125"]]


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
        "Winners on fresh seeds",
        "Effects on new data",
        "Searches",
        "Tuned nuisance factors",
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
