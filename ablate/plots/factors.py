"""What factors do: interactions, Shapley values, dose-response, importance, the weights behind each outcome."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize, TwoSlopeNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from ablate.plots.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PALE,
    SKY,
    error_bars,
    hatch_floor,
    label_rows,
    new_axes,
    tidy,
    wrap,
)

#: viridis without its palest end, which white paper swallows.
READABLE = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.86, 256)))


def interactions(matrix: pd.DataFrame, *, metric: str, noise: float | None = None, axes: Axes | None = None) -> Axes:
    """Heat map of pairwise interactions with their values; main effects on the diagonal, framed.

    Args:
        matrix: as `interaction_matrix` of the analysis gives; names on both sides.
        noise: half-width of the A/A noise floor; effects within it are hatched.
    """
    names = [wrap(str(name), 22) for name in matrix.columns]
    size = 2.2 + 0.75 * len(names)
    axes = new_axes(size + 0.9, size) if axes is None else axes
    values = matrix.to_numpy(dtype=float)
    reach = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    axes.imshow(values, cmap="PuOr_r", norm=TwoSlopeNorm(0.0, -reach, reach))
    for i, j in np.ndindex(*values.shape):
        text = "aliased" if np.isnan(values[i, j]) else f"{values[i, j]:+.3g}"
        dark = abs(values[i, j]) > 0.7 * reach  # false for NaN
        axes.text(j, i, text, ha="center", va="center", fontsize=7.5, color="white" if dark else INK)
        if noise is not None and abs(values[i, j]) <= noise:
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, ec=SKY, hatch="////", lw=0, alpha=0.35))
        if i == j:
            axes.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, fill=False, ec=INK, lw=1.4))
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    bar = axes.figure.colorbar(axes.images[0], ax=axes, shrink=0.7, pad=0.02)
    bar.set_label(f"effect on {metric}", fontsize=8)
    return tidy(axes)


def shapley(table: pd.DataFrame, *, metric: str, noise: float | None = None, axes: Axes | None = None) -> Axes:
    """Shapley value of each term with its interval, the leave-one-out effect beside it.

    Args:
        table: `term, shapley, low, high, leave_one_out`.
    """
    rows = label_rows([str(term) for term in table["term"]])
    axes = new_axes(7.0, 1.3 + rows.height) if axes is None else axes
    hatch_floor(axes, noise, horizontal=False)
    axes.axvline(0, color=INK, lw=0.8)
    value, low, high = (table[name].to_numpy(dtype=float) for name in ("shapley", "low", "high"))
    error = error_bars(value, low, high)
    axes.errorbar(
        value,
        rows.y,
        xerr=error,
        fmt="o",
        color=BLUE,
        ms=6,
        lw=2,
        capsize=3,
        label="averaged over coalitions (Shapley)",
    )
    axes.plot(
        table["leave_one_out"],
        rows.y,
        "D",
        mfc="white",
        mec=ORANGE,
        mew=1.6,
        ms=6,
        label="left out of the full model alone",
    )
    rows.put(axes)
    axes.set_xlabel(f"{metric}: effect of removing the term")
    axes.figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8)
    return tidy(axes)


def dose_response(
    table: pd.DataFrame,
    *,
    metric: str,
    path: str,
    sesoi: float | None = None,
    noise: float | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Difference to the baseline over the values of one factor, with its simultaneous band.

    Args:
        table: `value, difference, low, high`, ascending; the baseline's value has a difference of 0.
    """
    axes = new_axes(6.0, 3.4) if axes is None else axes
    x, y, low, high = (table[name].to_numpy(dtype=float) for name in ("value", "difference", "low", "high"))
    if sesoi is not None:
        axes.axhspan(-sesoi, sesoi, color=PALE, alpha=0.55, lw=0)
    hatch_floor(axes, noise)
    axes.axhline(0, color=INK, lw=0.8)
    finite = np.isfinite(low) & np.isfinite(high)
    axes.fill_between(x[finite], low[finite], high[finite], color=BLUE, alpha=0.2, lw=0)
    known = np.isfinite(y)
    axes.plot(x[known], y[known], "o-", color=BLUE, lw=1.4, ms=5)
    baseline = table["arm"].to_numpy() == "baseline" if "arm" in table else np.zeros(len(table), dtype=bool)
    axes.plot(x[baseline], y[baseline], "D", color=INK, ms=7, label="baseline")
    if len(x) and x.min() > 0 and x.max() / x.min() > 20:
        axes.set_xscale("log")
    axes.set_xlabel(path)
    axes.set_ylabel(f"{wrap(metric, 26)}:\narm − baseline")
    if baseline.any():
        axes.legend(frameon=False, loc="best")
    return tidy(axes)


def importance(table: pd.DataFrame, *, axes: Axes | None = None) -> Axes:
    """Importance of each factor over the band that shuffled outcomes give; grey where it can't be told from noise.

    Args:
        table: `factor, importance, null_median, null_high, noise, method`, most important first.
    """
    rows = label_rows([str(factor) for factor in table["factor"]])
    axes = new_axes(7.0, 1.3 + rows.height) if axes is None else axes
    height = 0.2
    for y, row in zip(rows.y, table.to_dict("records"), strict=True):
        axes.barh(y, row["importance"], height, color=PALE if row["noise"] else BLUE, ec=GREY if row["noise"] else BLUE)
        axes.plot([row["null_median"], row["null_high"]], [y, y], color=INK, lw=1.2)
        axes.plot([row["null_high"]], [y], "|", color=INK, ms=9, mew=1.6)
    rows.put(axes)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"importance ({', '.join(dict.fromkeys(table['method']))})")
    handles: list[Artist] = [Patch(fc=BLUE), Patch(fc=PALE, ec=GREY)]
    handles.append(Line2D([], [], marker="|", color=INK, lw=1.2, ms=8))
    names = ["told from noise", "not told from noise", "what shuffled outcomes give, to the 95 % quantile"]
    axes.figure.legend(handles, names, loc="outside upper left", ncols=3, frameon=False, fontsize=8)
    return tidy(axes)


def parallel_weights(
    table: pd.DataFrame, *, columns: list[str], metric: str, baseline: str = "baseline", axes: Axes | None = None
) -> Axes:
    """Parallel coordinates: a line an arm through its value of each factor to its outcome, coloured by the outcome.

    Args:
        table: a row an arm: `arm`, the columns, and the metric.
        columns: numeric factors, an axis each, scaled from their smallest to their largest value.
    """
    axes = new_axes(max(6.5, 1.15 * (len(columns) + 1) + 1.5), 4.2) if axes is None else axes
    own = table.dropna(subset=[metric])
    everything = own[[*columns, metric]].to_numpy(dtype=float)
    low, high = everything.min(axis=0), everything.max(axis=0)
    scaled = (everything - low) / np.where(high > low, high - low, 1.0)
    shade = Normalize(float(low[-1]), float(high[-1]) if high[-1] > low[-1] else float(low[-1]) + 1.0)
    colour = ScalarMappable(shade, READABLE)
    for values, arm in zip(scaled, own["arm"], strict=True):
        is_base = arm == baseline
        raw = low[-1] + values[-1] * (high[-1] - low[-1])
        axes.plot(
            values,
            color=INK if is_base else colour.to_rgba(raw),
            lw=2.4 if is_base else 1.2,
            alpha=0.9,
            zorder=2 if is_base else 1,
        )
    for position in range(everything.shape[1]):
        axes.axvline(position, color=GREY, lw=0.8, zorder=0)
        axes.text(position, -0.03, f"{low[position]:.3g}", ha="center", va="top", fontsize=7.5)
        axes.text(position, 1.03, f"{high[position]:.3g}", ha="center", va="bottom", fontsize=7.5)
    names = [wrap(column, 15) for column in [*columns, metric]]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.tick_params(axis="x", length=0, pad=14)
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.figure.colorbar(colour, ax=axes, shrink=0.7, pad=0.03).set_label(metric, fontsize=8)
    return tidy(axes)
