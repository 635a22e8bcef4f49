"""The same arms in several studies."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ablate.plots.style import INK, PALE, colours, error_bars, label_rows, new_axes, tidy

_MARKERS = "osD^vP*"


def studies(
    by_study: pd.DataFrame,
    pooled: pd.DataFrame,
    *,
    metric: str,
    sesoi: float | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Difference to the baseline of each arm in each study, and the pooled one in black.

    Args:
        by_study: `arm, study, difference, low, high`.
        pooled: `arm, difference, low, high`; arms of a single study are not in it.
    """
    arms = list(dict.fromkeys(by_study["arm"]))
    names = list(dict.fromkeys(by_study["study"]))
    lanes = len(names) + 1
    rows = label_rows(arms, line=0.17, pad=0.14 * lanes)
    axes = new_axes(7.2, 1.4 + rows.height) if axes is None else axes
    if sesoi is not None:
        axes.axvspan(-sesoi, sesoi, color=PALE, alpha=0.55, lw=0)
    axes.axvline(0, color=INK, lw=0.8)
    shades = colours(len(names))
    for lane, name in enumerate([*names, ""]):
        own = (by_study.loc[by_study["study"] == name] if name else pooled).set_index("arm").reindex(arms)
        shift = ((lanes - 1) / 2 - lane) * 0.12
        y = np.array(rows.y) + shift
        middle, low, high = (own[column].to_numpy(dtype=float) for column in ("difference", "low", "high"))
        error = error_bars(middle, low, high)
        colour = shades[lane] if name else INK
        axes.errorbar(
            middle, y, xerr=error, fmt=_MARKERS[lane % len(_MARKERS)], color=colour, ms=4.5, lw=1.3, capsize=0,
            label=name or "pooled",
        )  # fmt: skip
    rows.put(axes)
    axes.grid(axis="x", color=PALE, lw=0.5)
    axes.set_xlabel(f"{metric}: arm − baseline")
    axes.figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=8)
    return tidy(axes)
