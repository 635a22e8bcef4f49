"""Searches: what was proposed over time, and what was left of the winners on fresh seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ablate.plots.style import BLUE, GREY, INK, ORANGE, SKY, VERMILION, difference_rows, new_axes, tidy

STATES = {"COMPLETE": (BLUE, "o"), "PRUNED": (ORANGE, "v"), "FAIL": (VERMILION, "x")}
"""Colour and marker of a proposal by how it ended."""


def search_progress(
    table: pd.DataFrame, *, objective: str, goal: str, baseline: float | None = None, axes: Axes | None = None
) -> Axes:
    """Mean objective of each proposed arm in the order of proposals, and the best mean so far.

    Args:
        table: a row an arm: `number, state, value, best`.
        baseline: the baseline's mean objective on the same seeds.
    """
    axes = new_axes(7.0, 3.4) if axes is None else axes
    handles, names = [], []
    for state, (colour, marker) in STATES.items():
        own = table.loc[(table["state"] == state) & np.isfinite(table["value"].to_numpy(dtype=float))]
        if len(own):
            axes.plot(own["number"], own["value"], marker, color=colour, ms=5, alpha=0.8, zorder=3)
            handles.append(Line2D([], [], color=colour, marker=marker, ls=""))
            names.append({"PRUNED": "stopped early (last value)", "FAIL": "failed"}.get(state, "complete"))
    known = table.loc[np.isfinite(table["best"].to_numpy(dtype=float))]
    if len(known):
        axes.step(known["number"], known["best"], where="post", color=INK, lw=1.2, zorder=2)
        handles.append(Line2D([], [], color=INK, lw=1.2))
        names.append("best so far")
    if baseline is not None and np.isfinite(baseline):
        axes.axhline(baseline, color=GREY, lw=1, ls="--", zorder=1)
        handles.append(Line2D([], [], color=GREY, lw=1, ls="--"))
        names.append("baseline")
    axes.set_xlabel("proposal")
    axes.set_ylabel(f"{objective}\n({'lower' if goal == 'minimize' else 'higher'} is better)")
    _focus(axes, table["value"].to_numpy(dtype=float), baseline)
    if handles:
        axes.figure.legend(handles, names, loc="outside upper left", ncols=4, frameon=False, fontsize=8)
    return tidy(axes)


def _focus(axes: Axes, values: np.ndarray[tuple[int], np.dtype[np.float64]], baseline: float | None) -> None:
    """Keep the few proposals that went far astray from flattening all others; they are marked at the edge."""
    known = values[np.isfinite(values)]
    if len(known) < 8:
        return
    low, high = np.quantile(known, [0.0, 1.0])
    first, third = np.quantile(known, [0.25, 0.75])
    reach = 3 * (third - first)
    bounds = [max(low, first - reach), min(high, third + reach)]
    if baseline is not None and np.isfinite(baseline):
        bounds = [min(bounds[0], baseline), max(bounds[1], baseline)]
    margin = 0.06 * (bounds[1] - bounds[0]) or 1e-9
    outside = int(((known < bounds[0]) | (known > bounds[1])).sum())
    axes.set_ylim(bounds[0] - margin, bounds[1] + margin)
    if outside:
        axes.text(0.995, 0.02, f"{outside} outside", transform=axes.transAxes, ha="right", fontsize=7, color=GREY)


def shrinkage(
    table: pd.DataFrame,
    *,
    metric: str,
    goal: str,
    sesoi: float | None = None,
    noise: float | None = None,
    axes: Axes | None = None,
) -> Axes:
    """What the search saw in each winner, and what fresh seeds confirm of it, as differences to the baseline.

    Args:
        table: a row a winner: `arm, found, confirmed, low, high`.
    """
    axes, rows = difference_rows([str(arm) for arm in table["arm"]], sesoi=sesoi, noise=noise, axes=axes)
    numbers = table[["found", "confirmed", "low", "high"]].to_numpy(dtype=float)
    for y, (found, confirmed, low, high) in zip(rows.y, numbers, strict=True):
        if np.isfinite(low) and np.isfinite(high):
            axes.plot([low, high], [y, y], "|-", color=BLUE, lw=2, ms=7, mew=1.4, zorder=2)
        if np.isfinite(found) and np.isfinite(confirmed):
            axes.annotate("", (confirmed, y), (found, y), arrowprops={"arrowstyle": "->", "color": GREY, "lw": 1})
        axes.plot([found], [y], "D", color=ORANGE, mfc="white", ms=6.5, zorder=3)
        axes.plot([confirmed], [y], "o", color=BLUE, ms=6.5, zorder=4)
    rows.put(axes)
    low, high = axes.get_xlim()
    axes.set_xlim(-max(abs(low), abs(high)), max(abs(low), abs(high)))
    side = "better  ←   →  worse" if goal == "minimize" else "worse  ←   →  better"
    axes.set_xlabel(f"{metric}: winner − baseline\n{side}")
    handles = [
        Line2D([], [], color=ORANGE, mfc="white", marker="D", ls=""),
        Line2D([], [], color=BLUE, marker="o", lw=2),
    ]
    axes.figure.legend(
        handles, ["as the search saw it", "on fresh seeds, report split"], loc="outside upper left", ncols=2,
        frameon=False, fontsize=8,
    )  # fmt: skip
    return tidy(axes)


def random_effects(
    table: pd.DataFrame,
    *,
    metric: str,
    sesoi: float | None = None,
    noise: float | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Mean effect of each arm with its interval, and the wider interval of the effect on one new data set.

    Args:
        table: a row an arm: `arm, mean, low, high, new_low, new_high`.
    """
    axes, rows = difference_rows([str(arm) for arm in table["arm"]], sesoi=sesoi, noise=noise, axes=axes)
    numbers = table[["mean", "low", "high", "new_low", "new_high"]].to_numpy(dtype=float)
    for y, (mean, low, high, new_low, new_high) in zip(rows.y, numbers, strict=True):
        axes.plot([new_low, new_high], [y, y], "-", color=SKY, lw=5, alpha=0.6, solid_capstyle="butt", zorder=2)
        axes.plot([low, high], [y, y], "|-", color=BLUE, lw=2, ms=7, mew=1.4, zorder=3)
        axes.plot([mean], [y], "o", color=BLUE, ms=6, zorder=4)
    rows.put(axes)
    axes.set_xlabel(f"{metric}: arm − baseline")
    handles = [Line2D([], [], color=BLUE, marker="o", lw=2), Line2D([], [], color=SKY, lw=5, alpha=0.6)]
    axes.figure.legend(
        handles, ["mean effect", "effect on one new draw"], loc="outside upper left", ncols=2, frameon=False, fontsize=8
    )
    return tidy(axes)
