"""Two outcomes against each other: the rate-distortion plane and the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from ablate.plots.style import BLUE, GREY, INK, PALE, SKY, VERMILION, error_bars, hatch_floor, new_axes, tidy

#: Points that are numbered and named; of more, only the table says which is which.
MOST_NUMBERED = 40

_ANGLES = np.radians([45, 135, 315, 225, 0, 90, 180, 270])


def rate_distortion(
    table: pd.DataFrame, *, baseline: str = "baseline", noise: float | None = None, axes: Axes | None = None
) -> Axes:
    """Mean rate and distortion of each arm with t intervals, over lines of equal negative ELBO.

    Moving along a line trades KL for likelihood at no gain; moving across it is better or worse. Arms are numbered in
    the order of the table; a `rate shift` is a ring.

    Args:
        table: as `rate_distortion` of the analysis gives; arms without values are left out.
        noise: A/A noise floor of the negative ELBO: a band around the baseline's line.
    """
    axes = new_axes(7.2, 4.6) if axes is None else axes
    own = table.loc[table["n"] > 0]
    x, y = own["rate"].to_numpy(dtype=float), own["distortion"].to_numpy(dtype=float)
    x_error, y_error = (_error(own, name) for name in ("rate", "distortion"))
    axes.errorbar(x, y, xerr=x_error, yerr=y_error, fmt="none", ecolor=PALE, lw=1, zorder=1)
    is_base, shifted = (own["arm"] == baseline).to_numpy(), (own["note"] == "rate shift").to_numpy()
    axes.plot(x[~is_base & ~shifted], y[~is_base & ~shifted], "o", ms=6, mfc=BLUE, mec=INK, zorder=3)
    axes.plot(x[shifted], y[shifted], "o", ms=6, mfc="white", mec=VERMILION, mew=1.4, zorder=3)
    axes.plot(x[is_base], y[is_base], "D", ms=7, mfc=INK, mec=INK, zorder=3)
    _lines_of_equal_sum(axes, own, baseline, noise)
    axes.set_xlabel("rate: KL per token (nats)")
    axes.set_ylabel("distortion: NLL per token (nats)")
    number_points(axes, x, y)
    key_of_numbers(axes, list(own["arm"]))
    return tidy(axes)


def _error(own: pd.DataFrame, name: str) -> npt.NDArray[np.float64]:
    low, middle, high = (own[column].to_numpy(dtype=float) for column in (f"{name}_low", name, f"{name}_high"))
    return error_bars(middle, low, high)


def _lines_of_equal_sum(axes: Axes, own: pd.DataFrame, baseline: str, noise: float | None) -> None:
    low, high = axes.get_xlim()
    bottom, top = axes.get_ylim()
    step = (high - low + top - bottom) / 8
    x = np.array([low, high])
    for total in np.arange(low + bottom, high + top, step) if step > 0 else []:
        axes.plot(x, total - x, color=PALE, lw=0.7, zorder=0)
    base = own.loc[own["arm"] == baseline]
    if len(base):
        total = float(base["rate"].iloc[0] + base["distortion"].iloc[0])
        axes.plot(x, total - x, color=GREY, lw=1, ls="--", zorder=0, label="baseline's negative ELBO")
        if noise is not None and np.isfinite(noise):
            axes.fill_between(x, total - noise - x, total + noise - x, color=SKY, alpha=0.3, lw=0, zorder=0)
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, top)


def pareto(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    goals: Mapping[str, str] | None = None,
    baseline: str = "baseline",
    noise: float | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Arms by two metrics, shaded by the probability of being on the front, which is joined by a line.

    Args:
        table: as `pareto` of the analysis gives.
        noise: half-width of the A/A noise floor of `x`, hatched around the baseline.
    """
    axes = new_axes(7.2, 4.4) if axes is None else axes
    front = table.loc[table["on_front"]].sort_values(x)
    axes.plot(front[x], front[y], color=GREY, lw=1, drawstyle="default", zorder=1)
    base = table.loc[table["arm"] == baseline, x]
    if len(base) and noise is not None and np.isfinite(noise):
        centre = float(base.iloc[0])
        hatch_floor(axes, noise, centre=centre, horizontal=False)
    shade = Normalize(0, 1)
    known = table.loc[np.isfinite(table[[x, y]].to_numpy(dtype=float)).all(axis=1)]
    for own, marker in ((known.loc[known["arm"] != baseline], "o"), (known.loc[known["arm"] == baseline], "D")):
        axes.scatter(
            own[x], own[y], c=own["p_front"], cmap="Blues", norm=shade, s=46, marker=marker, edgecolors=INK,
            linewidths=[1.6 if on else 0.6 for on in own["on_front"]], zorder=2,
        )  # fmt: skip
    bar = axes.figure.colorbar(ScalarMappable(shade, "Blues"), ax=axes, shrink=0.7, pad=0.02)
    bar.set_label("probability of being on the front", fontsize=8)
    axes.set_xlabel(_with_goal(x, goals))
    axes.set_ylabel(_with_goal(y, goals))
    number_points(axes, table[x].to_numpy(dtype=float), table[y].to_numpy(dtype=float))
    key_of_numbers(axes, list(table["arm"]))
    return tidy(axes)


def _with_goal(name: str, goals: Mapping[str, str] | None) -> str:
    better = {"minimize": " (lower is better)", "maximize": " (higher is better)"}
    return name + better.get((goals or {}).get(name, ""), "")


def number_points(axes: Axes, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> None:
    """The number of each point beside it, on the side where none stands yet."""
    if len(x) > MOST_NUMBERED:
        return
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    points = np.column_stack([(x - left) / (right - left), (y - bottom) / (top - bottom)])
    taken = [*points]
    for position, point in enumerate(points):
        places = [point + 0.028 * np.array([np.cos(angle), 1.6 * np.sin(angle)]) for angle in _ANGLES]
        clear = [min(float(np.abs(place - other).max()) for other in taken) for place in places]
        chosen = next((index for index, room in enumerate(clear) if room > 0.022), int(np.argmax(clear)))
        taken.append(places[chosen])
        across, up = places[chosen]
        axes.text(across, up, str(position), transform=axes.transAxes, ha="center", va="center", fontsize=8, zorder=4)


def key_of_numbers(axes: Axes, arms: list[str]) -> None:
    """Numbers and names below the plot: names at the points would lie on each other."""
    if len(arms) > MOST_NUMBERED:
        return
    columns = [arms[: -(-len(arms) // 2)], arms[-(-len(arms) // 2) :]]
    start = 0
    texts = []
    for part in columns:
        texts.append("\n".join(f"{start + index}  {arm}" for index, arm in enumerate(part)))
        start += len(part)
    figure = axes.figure.get_figure(root=True)
    handles = [axes.plot([], [], ls="", marker="")[0] for _ in texts]
    if figure is not None:
        figure.legend(
            handles, texts, loc="outside lower left", ncols=2, frameon=False, fontsize=7.5, handlelength=0,
            handletextpad=0,
        )  # fmt: skip
