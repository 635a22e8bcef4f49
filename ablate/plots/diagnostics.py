"""The diagnostics of the token weighting, one small panel each."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from ablate.plots.style import (
    BLUE,
    GREY,
    INK,
    PALE,
    VERDICT_STYLE,
    error_bars,
    hatch_floor,
    label_rows,
    new_panels,
    tidy,
    wrap,
)


def by_arm(
    table: pd.DataFrame, *, metrics: list[str], baseline: str = "baseline", axes: list[Axes] | None = None
) -> list[Axes]:
    """Mean and t interval of each metric (panels) for each arm (rows), the baseline as a line through them.

    Args:
        table: `arm, metric, n, mean, low, high`, as `arms.arm_means` gives.
    """
    own = table.loc[table["metric"].isin(metrics) & (table["n"] > 0)]
    arms = list(dict.fromkeys(own["arm"]))
    rows = label_rows(arms, line=0.15, pad=0.08)
    height = rows.height + 0.8
    panels = new_panels(len(metrics), columns=5, row_height=height, width=10.5, sharey=True) if axes is None else axes
    for panel, metric in zip(panels, metrics, strict=True):
        part = own.loc[own["metric"] == metric].set_index("arm").reindex(arms)
        mean, low, high = (part[name].to_numpy(dtype=float) for name in ("mean", "low", "high"))
        error = error_bars(mean, low, high)
        panel.errorbar(mean, rows.y, xerr=error, fmt="o", color=BLUE, ms=4, lw=1.2, capsize=2)
        if baseline in arms:
            panel.axvline(mean[arms.index(baseline)], color=GREY, lw=0.9, ls="--", zorder=0)
        panel.set_title(wrap(metric, 24), fontsize=8, loc="left")
        panel.grid(axis="y", color=PALE, lw=0.5)
        rows.put(panel)
        _few_ticks(panel)
        tidy(panel)
    return panels


def _few_ticks(axes: Axes) -> None:
    axes.locator_params(axis="x", nbins=3)
    axes.ticklabel_format(axis="x", useOffset=False, style="plain")
    axes.tick_params(axis="x", labelsize=7)


def over_steps(
    table: pd.DataFrame, *, metrics: list[str], baseline: str = "baseline", axes: list[Axes] | None = None
) -> list[Axes]:
    """Each metric (panels) over steps: the baseline in black, every other arm as a thin line.

    Args:
        table: `arm, metric, step, mean`, as `learning.arm_curves` gives.
    """
    panels = new_panels(len(metrics), columns=2, row_height=1.7, sharex=True) if axes is None else axes
    for panel, metric in zip(panels, metrics, strict=True):
        own = table.loc[table["metric"] == metric]
        for arm, part in own.groupby("arm", sort=False):
            if arm != baseline:
                panel.plot(part["step"], part["mean"], color=BLUE, lw=0.8, alpha=0.55)
        base = own.loc[own["arm"] == baseline]
        panel.plot(base["step"], base["mean"], color=INK, lw=1.6)
        panel.set_title(wrap(metric, 44), fontsize=8, loc="left")
        tidy(panel)
    handles = [panels[0].plot([], [], color=INK, lw=1.6)[0], panels[0].plot([], [], color=BLUE, lw=0.8)[0]]
    figure = panels[0].figure
    figure.legend(handles, [baseline, "other arms"], loc="outside upper left", ncols=2, frameon=False, fontsize=8)
    figure.supxlabel("step", fontsize=9)
    return panels


def against_outcome(
    table: pd.DataFrame,
    *,
    metrics: list[str],
    outcome: str,
    noise: float | None = None,
    axes: list[Axes] | None = None,
) -> list[Axes]:
    """Each diagnostic (x) against the outcome (y): a dot a trial, the baseline's filled dark.

    Args:
        table: a row a trial: `arm, role` and a column for each metric and the outcome.
        noise: half-width of the A/A noise floor, hatched around the baseline's mean.
    """
    panels = new_panels(len(metrics), columns=3, row_height=2.0, sharey=True, width=7.4) if axes is None else axes
    for panel, metric in zip(panels, metrics, strict=True):
        is_base = (table["role"] == "baseline").to_numpy()
        hatch_floor(panel, noise, centre=float(table.loc[is_base, outcome].mean()))
        panel.plot(table.loc[~is_base, metric], table.loc[~is_base, outcome], "o", color=BLUE, ms=3, alpha=0.5, mew=0)
        panel.plot(table.loc[is_base, metric], table.loc[is_base, outcome], VERDICT_STYLE[""][1], color=INK, ms=4)
        panel.set_title(wrap(metric, 30), fontsize=7.5, loc="left")
        _few_ticks(panel)
        tidy(panel)
    panels[0].figure.supylabel(outcome, fontsize=9)
    return panels
