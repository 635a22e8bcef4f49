"""Paired seeds: each seed's baseline joined to its arm."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ablate.plots.style import BLUE, GREY, INK, PALE, VERMILION, hatch_floor, new_panels, tidy, wrap


def paired_slopes(
    table: pd.DataFrame,
    *,
    metric: str,
    goal: str | None = None,
    noise: float | None = None,
    axes: list[Axes] | None = None,
) -> list[Axes]:
    """A panel an arm: a line a seed from the baseline's value to the arm's, the mean in black.

    Lines that rise together say that the arm moves every seed alike; lines that cross say that seeds disagree.

    Args:
        table: a row a pair: `arm, seed, baseline, value`.
        noise: half-width of the A/A noise floor, hatched around the baseline's mean.
    """
    arms = list(dict.fromkeys(table["arm"]))
    panels = new_panels(len(arms), columns=4, row_height=1.9, width=7.4, sharey=True) if axes is None else axes
    for panel, arm in zip(panels, arms, strict=True):
        own = table.loc[table["arm"] == arm]
        pairs = own[["baseline", "value"]].to_numpy(dtype=float)
        for before, after in pairs:
            panel.plot(
                [0, 1], [before, after], color=_colour(after - before, goal), lw=1, alpha=0.7, marker="o", ms=2.5
            )
        if len(pairs):
            hatch_floor(panel, noise, centre=float(pairs[:, 0].mean()))
            panel.plot([0, 1], pairs.mean(axis=0), color=INK, lw=2.2)
        panel.set_xticks([0, 1], ["baseline", "arm"])
        panel.set_xlim(-0.25, 1.25)
        panel.set_title(wrap(arm, 26), fontsize=8, loc="left")
        tidy(panel)
    _legend(panels[0], goal)
    panels[0].figure.supylabel(metric, fontsize=9)
    return panels


def _colour(change: float, goal: str | None) -> str:
    if goal is None or change == 0:
        return GREY
    return BLUE if (change < 0) == (goal == "minimize") else VERMILION


def _legend(axes: Axes, goal: str | None) -> None:
    lines = [axes.plot([], [], color=colour, lw=1)[0] for colour in (BLUE, VERMILION)]
    lines.append(axes.plot([], [], color=INK, lw=2.2)[0])
    names = ["seed where the arm is better", "seed where it is worse", "mean"]
    chosen = slice(0, 3) if goal is not None else slice(2, 3)
    axes.figure.legend(lines[chosen], names[chosen], loc="outside upper left", ncols=3, frameon=False, fontsize=8)


def difference_curves(
    table: pd.DataFrame,
    *,
    metric: str,
    sesoi: float | None = None,
    noise: float | None = None,
    axes: list[Axes] | None = None,
) -> list[Axes]:
    """A panel an arm: mean paired difference to the baseline over steps, with its band over seeds.

    Args:
        table: `arm, step, mean, low, high` of arm minus baseline at equal step and seed.
    """
    arms = list(dict.fromkeys(table["arm"]))
    panels = new_panels(len(arms), row_height=1.8, sharex=True, sharey=True) if axes is None else axes
    for panel, arm in zip(panels, arms, strict=True):
        own = table.loc[table["arm"] == arm]
        if sesoi is not None:
            panel.axhspan(-sesoi, sesoi, color=PALE, alpha=0.55, lw=0)
        hatch_floor(panel, noise)
        panel.axhline(0, color=INK, lw=0.7)
        panel.plot(own["step"], own["mean"], color=BLUE, lw=1.4, marker="o" if len(own) == 1 else "", ms=3)
        panel.fill_between(own["step"], own["low"], own["high"], color=BLUE, alpha=0.2, lw=0)
        panel.set_title(wrap(arm, 32), fontsize=8, loc="left")
        tidy(panel)
    _view(panels[0], table, sesoi)
    panels[0].figure.supxlabel("step", fontsize=9)
    panels[0].figure.supylabel(f"{metric}: arm − baseline", fontsize=9)
    return panels


def _view(axes: Axes, table: pd.DataFrame, sesoi: float | None) -> None:
    """Leave out what the first fifth of the steps alone would make room for."""
    later = table.loc[table["step"] >= 0.2 * table["step"].max(), ["low", "high", "mean"]].to_numpy(dtype=float)
    later = np.append(later[np.isfinite(later)], [0.0, *([sesoi, -sesoi] if sesoi is not None else [])])
    reach = float(np.ptp(later))
    if reach > 0:
        axes.set_ylim(float(later.min()) - 0.1 * reach, float(later.max()) + 0.1 * reach)
