"""What the data can tell apart: cosines of terms, their spectrum, arms in the plane, predicted against measured."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator

from ablate.plots.plane import key_of_numbers, number_points
from ablate.plots.style import BLUE, GREY, INK, ORANGE, PALE, VERMILION, error_bars, hatch_floor, new_axes, tidy, wrap

Array = npt.NDArray[np.float64]


def cosines(table: pd.DataFrame, *, label: str = "cosine of the weight matrices", axes: Axes | None = None) -> Axes:
    """Heat map of the cosines between terms, with their values.

    Args:
        table: terms (rows) by terms (columns); nan where a term has no weight anywhere.
    """
    count = len(table)
    axes = new_axes(max(5.4, 0.72 * count + 3.2), max(3.4, 0.52 * count + 1.4)) if axes is None else axes
    values = table.to_numpy(dtype=float)
    shade = Normalize(-1.0 if np.nanmin(values, initial=0.0) < 0 else 0.0, 1.0)
    image = axes.imshow(np.ma.masked_invalid(values), cmap="Blues", norm=shade, aspect="auto")
    for i, j in np.ndindex(values.shape):
        text = f"{values[i, j]:.2f}" if np.isfinite(values[i, j]) else "–"
        dark = np.isfinite(values[i, j]) and shade(values[i, j]) > 0.6
        axes.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else INK)
    axes.set_xticks(range(count), [str(position + 1) for position in range(count)])
    names = [f"{wrap(str(name), 32)}  {position + 1}" for position, name in enumerate(table.index)]
    axes.set_yticks(range(count), names, fontsize=7.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label(label, fontsize=8)
    axes.figure.get_figure(root=True).set_layout_engine("constrained", w_pad=0.15)  # the names are long
    return axes


def spectrum(table: pd.DataFrame, *, axes: Axes | None = None) -> Axes:
    """Singular values of the terms' weight matrices, a line a setting, the baseline's dark.

    Args:
        table: `setting, number, singular_value, effective_rank`; the first setting is the baseline's.
    """
    axes = new_axes(6.4, 3.2) if axes is None else axes
    settings = list(dict.fromkeys(table["setting"]))
    for setting in reversed(settings):
        own = table.loc[table["setting"] == setting]
        base = setting == settings[0]
        axes.plot(
            own["number"], own["singular_value"], "o-", color=INK if base else BLUE, lw=1.8 if base else 0.9,
            ms=5 if base else 3, alpha=1.0 if base else 0.6, zorder=2 if base else 1,
        )  # fmt: skip
    rank = float(table["effective_rank"].iloc[0]) if len(table) else np.nan
    if np.isfinite(rank):
        axes.axvline(rank, color=ORANGE, lw=1.2, ls="--", zorder=0)
    handles = [axes.plot([], [], color=INK, lw=1.8)[0], axes.plot([], [], color=BLUE, lw=0.9)[0]]
    handles.append(axes.plot([], [], color=ORANGE, lw=1.2, ls="--")[0])
    labels = [str(settings[0]) if settings else "", "over the studied range", f"effective rank {rank:.2f}"]
    axes.legend(handles, labels, frameon=False, fontsize=8, loc="upper right")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("direction")
    axes.set_ylabel("singular value")
    return tidy(axes)


def arms_in_plane(
    table: pd.DataFrame,
    *,
    x: str = "direction_1",
    y: str = "direction_2",
    colour: str | None = None,
    baseline: str = "baseline",
    axes: Axes | None = None,
) -> Axes:
    """Arms in two of their canonical coordinates, numbered in the order of the table.

    Args:
        table: `arm` and a column for each coordinate; arms without coordinates are left out.
        colour: a further column (a metric, β_eff) that shades the points.
    """
    axes = new_axes(8.6, 4.8) if axes is None else axes
    own = table.loc[np.isfinite(table[[x, y]].to_numpy(dtype=float)).all(axis=1)]
    across, up = own[x].to_numpy(dtype=float), own[y].to_numpy(dtype=float)
    is_base = (own["arm"] == baseline).to_numpy()
    if colour is None:
        axes.plot(across[~is_base], up[~is_base], "o", ms=6, mfc=BLUE, mec=INK, zorder=3)
        axes.plot(across[is_base], up[is_base], "D", ms=7, mfc=INK, mec=INK, zorder=4)
    else:
        _shaded(axes, across, up, own[colour].to_numpy(dtype=float), is_base, colour)
    axes.set_xlabel(_axis(x))
    axes.set_ylabel(_axis(y))
    axes.margins(0.12)
    number_points(axes, across, up)
    key_of_numbers(axes, list(own["arm"]))
    return tidy(axes)


def _shaded(axes: Axes, x: Array, y: Array, values: Array, is_base: npt.NDArray[np.bool_], name: str) -> None:
    known = values[np.isfinite(values)]
    shade = Normalize(*((known.min(), known.max()) if len(known) and np.ptp(known) else (0.0, 1.0)))
    for own, marker in ((~is_base, "o"), (is_base, "D")):
        axes.scatter(
            x[own], y[own], c=values[own], cmap="Blues", norm=shade, s=46, marker=marker, edgecolors=INK,
            plotnonfinite=True, zorder=3,
        )  # fmt: skip
    axes.figure.colorbar(ScalarMappable(shade, "Blues"), ax=axes, shrink=0.7, pad=0.02).set_label(name, fontsize=8)


def _axis(name: str) -> str:
    number = name.removeprefix("direction_")
    return f"token weights along direction {number}" if number != name else name.replace("beta_eff", "β_eff")


def predicted_against_measured(
    table: pd.DataFrame,
    *,
    metric: str,
    x: str = "distance",
    label: str = "distance from the baseline, before training",
    sesoi: float | None = None,
    noise: float | None = None,
    axes: Axes | None = None,
) -> Axes:
    """What was predicted of each arm (x) against the size of its measured effect (y), with its t interval.

    Args:
        table: `arm, role, <x>, difference, low, high, effect, failed`, as `predictions` of the analysis gives.
        noise: A/A noise floor.
    """
    axes = new_axes(8.6, 4.6) if axes is None else axes
    own = table.loc[np.isfinite(table[[x, "effect"]].to_numpy(dtype=float)).all(axis=1)]
    across, up = own[x].to_numpy(dtype=float), own["effect"].to_numpy(dtype=float)
    half = (own["high"].to_numpy(dtype=float) - own["low"].to_numpy(dtype=float)) / 2
    error = error_bars(up, np.maximum(up - half, 0), up + half)
    axes.errorbar(across, up, yerr=error, fmt="none", ecolor=PALE, lw=1, zorder=1)
    twin, failed = (own["role"] == "twin").to_numpy(), own["failed"].to_numpy(dtype=bool)
    axes.plot(across[~twin], up[~twin], "o", ms=6, mfc=BLUE, mec=INK, zorder=3, label="arm")
    if twin.any():
        axes.plot(across[twin], up[twin], "o", ms=6, mfc="white", mec=BLUE, mew=1.4, zorder=3, label="twin")
    if failed.any():
        axes.plot(across[failed], up[failed], "x", color=VERMILION, ms=10, mew=2, zorder=4, label="failed")
    if sesoi is not None:
        axes.axhline(sesoi, color=GREY, lw=0.9, ls="--", zorder=0, label="smallest effect of interest")
    hatch_floor(axes, noise)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.set_ylabel(f"|difference of {metric}|")
    axes.legend(frameon=False, fontsize=8, loc="best")
    number_points(axes, across, up)
    key_of_numbers(axes, list(own["arm"]))
    return tidy(axes)
