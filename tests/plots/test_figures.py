"""Every figure: draws, whatever stands in its table; takes its labels from the table; is left out of pyplot."""

from __future__ import annotations

import sys
from collections.abc import Callable

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from ablate.plots import comparison, curves, diagnostics, factors, forest, geometry, overview, plane, search, slopes
from ablate.plots.style import RC, VERDICT_STYLE, label_rows, wrap

LONG = "-normalized_concentration_corrected_token_weighted_weight"
ARMS = ["baseline", "-a", LONG]
Drawn = Axes | list[Axes]


def contrasts(difference: float = 0.1, half: float = 0.05) -> pd.DataFrame:
    return pd.DataFrame(
        {"arm": ARMS[1:], "difference": difference, "low": difference - half, "high": difference + half,
         "verdict": ["needed", "undecided"]}
    )  # fmt: skip


def by_step(value: float = 1.0) -> pd.DataFrame:
    rows = [(arm, "eval/x", step, value, value - 0.1, value + 0.1) for arm in ARMS for step in (0, 10)]
    return pd.DataFrame(rows, columns=["arm", "metric", "step", "mean", "low", "high"])


def by_arm(value: float = 1.0) -> pd.DataFrame:
    rows = [(arm, name, 3, value, value - 0.1, value + 0.1) for arm in ARMS for name in ("eval/x", "eval/y")]
    return pd.DataFrame(rows, columns=["arm", "metric", "n", "mean", "low", "high"])


def pairs(value: float = 1.0) -> pd.DataFrame:
    base = [1.0, 1.1, 1.0, 1.1]
    return pd.DataFrame({"arm": np.repeat(ARMS[1:], 2), "seed": [0, 1, 0, 1], "baseline": base, "value": value})


def points(value: float = 1.0) -> pd.DataFrame:
    parts = {f"{name}{end}": value for name in ("rate", "distortion") for end in ("", "_low", "_high")}
    return pd.DataFrame({"arm": ARMS, "n": 2, **parts, "note": ["", "rate shift", ""]})


def front(value: float = 1.0) -> pd.DataFrame:
    table = pd.DataFrame({"arm": ARMS, "eval/x": [value, 1, 2], "eval/y": value})
    return table.assign(on_front=[True, False, False], p_front=0.5)


def scores(value: float = 0.1) -> pd.DataFrame:
    return pd.DataFrame({"factor": ["a", LONG], "method": "fanova", "importance": value, "null_median": 0.01,
                         "null_high": 0.05, "noise": [False, True]})  # fmt: skip


def terms(value: float = 0.1) -> pd.DataFrame:
    return pd.DataFrame({"term": ["a", LONG], "shapley": value, "low": value, "high": value, "leave_one_out": 0.1})


def doses(value: float = 0.1) -> pd.DataFrame:
    return pd.DataFrame({"arm": ["-x", "baseline", "y"], "value": [0.001, 1.0, 2.0], "difference": [value, 0, value],
                         "low": [value, 0, value], "high": [value, 0, value]})  # fmt: skip


def trial_rows(value: float = 1.0) -> pd.DataFrame:
    return pd.DataFrame({"role": ["baseline", "comparison"], "eval/x": [value, 2.0], "eval/y": [1.0, value]})


def configurations(value: float = 1.0) -> pd.DataFrame:
    return pd.DataFrame({"arm": ARMS, "w": [1.0, 0.0, 1.0], "v": 1.0, "eval/x": [value, 2.0, 3.0]})


def matrix(value: float = 0.1) -> pd.DataFrame:
    return pd.DataFrame([[0.2, value], [value, -0.1]], index=["a", LONG], columns=["a", LONG])


def studies(value: float = 0.1) -> tuple[pd.DataFrame, pd.DataFrame]:
    table = pd.concat([contrasts(value).assign(study=name) for name in ("one", "two")])
    return table, contrasts(value)[:1]


def ends(_value: float = 0.0) -> pd.DataFrame:
    return pd.DataFrame([["COMPLETE", "diverged"], ["WAITING", "none"], ["FAIL", "PRUNED"]], index=ARMS, columns=[0, 1])


def singular_values(value: float = 1.0) -> pd.DataFrame:
    return pd.DataFrame({"setting": ["-a", "-a", LONG, LONG], "number": [1, 2, 1, 2], "singular_value": value,
                         "effective_rank": value})  # fmt: skip


def coordinates(value: float = 1.0) -> pd.DataFrame:
    return pd.DataFrame({"arm": ARMS, "direction_1": [1.0, value, 1.1], "direction_2": value, "eval/x": [value, 2, 3]})


def predicted(value: float = 0.1) -> pd.DataFrame:
    table = pd.DataFrame({"arm": ARMS[1:], "role": ["comparison", "twin"], "distance": [0.0, value]})
    return table.assign(difference=value, low=value - 0.1, high=value + 0.1, effect=abs(value), failed=[True, False])


def proposals(value: float = 1.0) -> pd.DataFrame:
    states = ["COMPLETE", "PRUNED", "FAIL", *["COMPLETE"] * 7]
    return pd.DataFrame({"number": range(10), "state": states, "value": [value, 9, np.nan, *[1.0] * 7], "best": value})


def winners(value: float = 0.1) -> pd.DataFrame:
    return pd.DataFrame({"arm": ["a", LONG], "found": [-value, np.nan], "confirmed": value, "low": value - 0.1,
                         "high": [value + 0.1, np.inf]})  # fmt: skip


def draws(value: float = 0.1) -> pd.DataFrame:
    return pd.DataFrame({"arm": ["-a", LONG], "mean": value, "low": value - 0.1, "high": value + 0.1,
                         "new_low": value - 0.4, "new_high": value + 0.4})  # fmt: skip


FIGURES: dict[str, Callable[[float], Drawn]] = {
    "forest": lambda v: forest.forest(contrasts(v), metric="eval/x", goal="minimize", sesoi=0.02, noise=0.01),
    "learning curves": lambda v: curves.learning_curves(
        by_step(v), metric="eval/x", reference=1.2, at_step=10, noise=0.1
    ),
    "difference curves": lambda v: slopes.difference_curves(by_step(v), metric="eval/x", sesoi=0.02, noise=0.01),
    "paired slopes": lambda v: slopes.paired_slopes(pairs(v), metric="eval/x", goal="minimize", noise=0.1),
    "diagnostics by arm": lambda v: diagnostics.by_arm(by_arm(v), metrics=["eval/x", "eval/y"]),
    "diagnostics over steps": lambda v: diagnostics.over_steps(by_step(v), metrics=["eval/x"]),
    "diagnostics against outcome": lambda v: diagnostics.against_outcome(
        trial_rows(v), metrics=["eval/x"], outcome="eval/y", noise=0.1
    ),
    "rate and distortion": lambda v: plane.rate_distortion(points(v), noise=0.1),
    "pareto": lambda v: plane.pareto(front(v), x="eval/x", y="eval/y", goals={"eval/x": "minimize"}, noise=0.1),
    "ranks": lambda v: overview.ranks(
        pd.DataFrame({"arm": ARMS, "rank": [1.0, 2, 3], "low": 1.0, "high": 3.0, "p_best": v}),
        metric="eval/x",
        within_noise={LONG},
    ),
    "seed blocks": lambda v: overview.seed_blocks(ends(v)),
    "interactions": lambda v: factors.interactions(matrix(v), metric="eval/x", noise=0.15),
    "shapley": lambda v: factors.shapley(terms(v), metric="eval/x", noise=0.01),
    "dose-response": lambda v: factors.dose_response(doses(v), metric="eval/x", path="alpha", sesoi=0.02, noise=0.01),
    "importance": lambda v: factors.importance(scores(v)),
    "parallel weights": lambda v: factors.parallel_weights(configurations(v), columns=["w", "v"], metric="eval/x"),
    "term cosines": lambda v: geometry.cosines(matrix(v)),
    "term spectrum": lambda v: geometry.spectrum(singular_values(v)),
    "arms in the plane": lambda v: geometry.arms_in_plane(coordinates(v)),
    "arms in the plane, by outcome": lambda v: geometry.arms_in_plane(coordinates(v), colour="eval/x"),
    "predicted against measured": lambda v: geometry.predicted_against_measured(
        predicted(v), metric="eval/x", sesoi=0.02, noise=0.01
    ),
    "search progress": lambda v: search.search_progress(
        proposals(v), objective="eval/x", goal="minimize", baseline=1.0
    ),
    "shrinkage": lambda v: search.shrinkage(winners(v), metric="eval/x", goal="minimize", sesoi=0.02, noise=0.01),
    "random effects": lambda v: search.random_effects(draws(v), metric="eval/x", sesoi=0.02, noise=0.01),
    "several studies": lambda v: comparison.studies(*studies(v), metric="eval/x", sesoi=0.02),
}


#: Figures of outcomes in the outcome's own unit, or of comparisons by it: each shows the A/A noise floor.
FLOORED = (
    "forest", "learning curves", "difference curves", "paired slopes", "diagnostics against outcome", "pareto", "ranks",
    "interactions", "shapley", "dose-response", "predicted against measured", "shrinkage", "random effects",
)  # fmt: skip


def hatches(drawn: Drawn) -> int:
    figure = (drawn[0] if isinstance(drawn, list) else drawn).get_figure(root=True)
    assert figure is not None
    return sum(patch.get_hatch() == "////" for patch in figure.findobj(mpl.patches.Patch))


@pytest.mark.parametrize("name", FLOORED)
def test_the_noise_floor_is_hatched(name: str) -> None:
    assert hatches(FIGURES[name](0.1)) > 0


def test_an_unknown_noise_floor_is_not() -> None:
    assert hatches(forest.forest(contrasts(), metric="eval/x", noise=np.nan)) == 0
    assert hatches(curves.learning_curves(by_step(), metric="eval/x")) == 0
    assert hatches(factors.interactions(matrix(), metric="eval/x", noise=0.05)) == 0


def texts(drawn: Drawn) -> str:
    figure = (drawn[0] if isinstance(drawn, list) else drawn).get_figure(root=True)
    assert figure is not None
    with mpl.rc_context(RC):
        figure.draw_without_rendering()
    found = [*figure.findobj(mpl.text.Text)]
    return " ".join(text.get_text().replace("\n", "") for text in found)


@pytest.mark.parametrize("name", FIGURES)
def test_labels_come_from_the_table(name: str) -> None:
    text = texts(FIGURES[name](0.1))
    assert any(label in text for label in (LONG, LONG[1:], "eval/x", "-a"))


@pytest.mark.parametrize("value", [np.nan, 0.0, 1e9])
@pytest.mark.parametrize("name", FIGURES)
def test_draws_whatever_the_numbers(name: str, value: float) -> None:
    assert texts(FIGURES[name](value))


def test_an_infinite_interval_is_an_open_marker_without_a_bar() -> None:
    axes = forest.forest(contrasts(half=np.inf), metric="eval/x")
    assert [line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "s"] == ["white"]
    assert texts(axes)
    table = terms().assign(low=-np.inf, high=np.inf)
    assert texts(factors.shapley(table, metric="eval/x"))
    assert texts(factors.dose_response(doses().assign(low=-np.inf, high=np.inf), metric="eval/x", path="alpha"))


def test_no_figure_is_kept_by_pyplot() -> None:
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_axes_of_ones_own_are_drawn_on() -> None:
    from ablate.plots.style import new_axes

    axes = new_axes()
    assert forest.forest(contrasts(), metric="eval/x", axes=axes) is axes


def test_long_names_are_wrapped_and_rows_keep_apart() -> None:
    assert wrap(LONG, 34) == "-normalized_concentration_\ncorrected_token_weighted_weight"
    assert wrap("a" * 50, 34) == "a" * 50
    rows = label_rows([LONG, "b", LONG])
    assert np.diff(rows.y).max() < -0.25
    assert rows.height > 3 * 0.3


def test_verdicts_differ_in_more_than_colour() -> None:
    markers = {VERDICT_STYLE[name][1] for name in ("needed", "harmful", "droppable", "undecided")}
    assert len(markers) == 4
