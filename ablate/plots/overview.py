"""The study at a glance: the end of every trial, and the ranks of the arms."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ablate.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, label_rows, new_axes, tidy

#: End of a trial -> colour, letter and name. The letter tells them apart in print.
ENDS: dict[str, tuple[str, str, str]] = {
    "COMPLETE": (GREEN, "", "complete"),
    "diverged": (VERMILION, "D", "diverged"),
    "FAIL": (ORANGE, "F", "failed"),
    "PRUNED": (PURPLE, "P", "stopped early"),
    "RUNNING": (BLUE, "R", "running"),
    "WAITING": (PALE, "", "to run"),
    "none": ("white", "", "not planned"),
}


#: Rows that are named one by one; of more, every second, third, … is.
MOST_NAMED = 60


def seed_blocks(table: pd.DataFrame, *, axes: Axes | None = None) -> Axes:
    """How every trial ended: arms (rows) by seeds (columns).

    Args:
        table: arms (index, in order) by seeds (columns), each cell a key of ENDS.
    """
    count = len(table)
    each = 0.3 if count <= MOST_NAMED else 0.11
    axes = new_axes(min(11.0, 3.4 + 0.34 * table.shape[1]), 1.0 + each * max(1, count)) if axes is None else axes
    keys = list(ENDS)
    codes = table.map(keys.index).to_numpy(dtype=int)
    axes.pcolormesh(
        np.arange(table.shape[1] + 1), np.arange(count + 1), codes, cmap=ListedColormap([ENDS[k][0] for k in keys]),
        vmin=-0.5, vmax=len(keys) - 0.5, edgecolors="white", linewidth=1.2 if each > 0.2 else 0.3,
    )  # fmt: skip
    for i, j in np.argwhere(np.isin(codes, [keys.index(key) for key in keys if ENDS[key][1]])):
        axes.text(j + 0.5, i + 0.5, ENDS[keys[codes[i, j]]][1], ha="center", va="center", fontsize=7, color=INK)
    every = -(-max(count, 1) // MOST_NAMED)
    axes.set_yticks(np.arange(count)[::every] + 0.5, [_one_line(label) for label in table.index[::every]], fontsize=7.5)
    step = -(-table.shape[1] // 24)
    axes.set_xticks(
        np.arange(table.shape[1])[::step] + 0.5, [str(seed) for seed in table.columns[::step]], fontsize=7.5
    )
    axes.invert_yaxis()
    axes.set_xlabel("seed")
    shown = [key for key in keys if (codes == keys.index(key)).any()]
    handles = [
        Patch(fc=colour, ec=GREY, label=f"{name} ({letter})" if letter else name)
        for colour, letter, name in map(ENDS.__getitem__, shown)
    ]
    axes.figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=8)
    axes.spines[["left", "bottom"]].set_visible(False)
    return tidy(axes)


def _one_line(label: object) -> str:
    text = str(label)
    return text if len(text) <= 62 else f"{text[:30]}…{text[-31:]}"


def ranks(table: pd.DataFrame, *, metric: str, within_noise: Collection[str] = (), axes: Axes | None = None) -> Axes:
    """Rank of each arm with its interval over resampled seeds, best on top.

    Args:
        table: `arm, rank, low, high, p_best`, as `rank_uncertainty` gives.
        within_noise: arms whose difference to the baseline lies within the A/A noise floor, hatched.
    """
    rows = label_rows([str(arm) for arm in table["arm"]], pad=0.1)
    axes = new_axes(7.0, 0.9 + rows.height) if axes is None else axes
    for y, row in zip(rows.y, table.to_dict("records"), strict=True):
        axes.plot([row["low"], row["high"]], [y, y], color=BLUE, lw=5, alpha=0.3, solid_capstyle="butt")
        axes.plot(row["rank"], y, "o", color=BLUE, ms=5.5)
        if row["arm"] in within_noise:
            axes.axhspan(y - 0.12, y + 0.12, facecolor="none", edgecolor=SKY, hatch="////", lw=0, alpha=0.35, zorder=0)
    rows.put(axes)
    axes.set_xlim(0.5, len(table) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="x", color=PALE, lw=0.5)
    axes.set_xlabel(f"rank on {metric} (1 is best)")
    return tidy(axes)
