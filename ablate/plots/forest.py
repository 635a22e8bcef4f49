"""Paired differences with their intervals, one row a contrast."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ablate.plots.style import GREY, PALE, SKY, VERDICT_STYLE, difference_rows, tidy


def forest(
    table: pd.DataFrame,
    *,
    metric: str,
    goal: str | None = None,
    sesoi: float | None = None,
    noise: float | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Difference to the baseline with its interval; first row on top.

    Args:
        table: a row a contrast: `arm, difference, low, high`; optional `verdict`.
        sesoi: half-width of the shaded band in which a difference doesn't matter.
        noise: half-width of the A/A noise floor, drawn hatched.
    """
    axes, rows = difference_rows([str(arm) for arm in table["arm"]], sesoi=sesoi, noise=noise, axes=axes)
    verdicts = [name if isinstance(name, str) else "" for name in table["verdict"]] if "verdict" in table else []
    names = verdicts or [""] * len(table)
    numbers = table[["difference", "low", "high"]].to_numpy(dtype=float)
    for y, (difference, low, high), name in zip(rows.y, numbers, names, strict=True):
        _row(axes, y, difference, low, high, name)
    rows.put(axes)
    _frame(axes, metric, goal)
    _legend(axes, [name for name in dict.fromkeys(names) if name], sesoi, noise)
    return tidy(axes)


def _row(axes: Axes, y: float, difference: float, low: float, high: float, verdict: str) -> None:
    colour, marker = VERDICT_STYLE[verdict]
    known = bool(np.isfinite(low) and np.isfinite(high))
    if not np.isfinite(difference):
        axes.text(0, y, "  no pair", va="center", fontsize=8, color=GREY)
        return
    if known:
        axes.plot([low, high], [y, y], "|-", color=colour, lw=2, ms=7, mew=1.4, solid_capstyle="butt", zorder=2)
    axes.plot([difference], [y], marker, color=colour, mfc=colour if known else "white", ms=6.5, zorder=3)


def _frame(axes: Axes, metric: str, goal: str | None) -> None:
    low, high = axes.get_xlim()
    reach = max(abs(low), abs(high))
    axes.set_xlim(-reach, reach)
    axes.grid(axis="x", color=PALE, lw=0.5, zorder=0)
    side = {"minimize": "arm better  ←   →  arm worse", "maximize": "arm worse  ←   →  arm better"}.get(goal or "", "")
    axes.set_xlabel(f"{metric}: arm − baseline" + (f"\n{side}" if side else ""))


def _legend(axes: Axes, verdicts: list[str], sesoi: float | None, noise: float | None) -> None:
    handles, names = [], list(verdicts)
    for verdict in verdicts:
        colour, marker = VERDICT_STYLE[verdict]
        handles.append(Line2D([], [], color=colour, marker=marker, ls="", ms=6.5))
    if sesoi is not None:
        handles.append(Line2D([], [], color=PALE, lw=8))
        names.append(f"within ±{sesoi:g}: too small to matter")
    if noise is not None and np.isfinite(noise):
        handles.append(Line2D([], [], color=SKY, lw=8, alpha=0.5))
        names.append(f"A/A noise floor ±{noise:.2g}")
    if handles:
        axes.figure.legend(handles, names, loc="outside upper left", ncols=3, frameon=False, fontsize=8)
