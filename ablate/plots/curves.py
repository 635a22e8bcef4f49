"""Metrics over steps, one small panel an arm, the baseline behind each."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ablate.plots.style import BLUE, GREY, INK, VERMILION, hatch_floor, new_panels, tidy, wrap


def learning_curves(
    table: pd.DataFrame,
    *,
    metric: str,
    baseline: str = "baseline",
    reference: float | None = None,
    reference_name: str = "z-free reference",
    at_step: int | None = None,
    noise: float | None = None,
    axes: list[Axes] | None = None,
) -> list[Axes]:
    """Mean and band over seeds of one metric: a panel an arm, the baseline dashed in each.

    Args:
        table: `arm, metric, step, mean, low, high`, as `learning.arm_curves` gives.
        reference: a level to draw beside the curves.
        at_step: the step at which arms are compared, if not the last.
        noise: half-width of the A/A noise floor, hatched around the baseline where arms are compared.
    """
    own = table.loc[table["metric"] == metric]
    arms = [arm for arm in dict.fromkeys(own["arm"]) if arm != baseline] or list(dict.fromkeys(own["arm"]))
    panels = new_panels(len(arms), row_height=1.9, sharex=True, sharey=True) if axes is None else axes
    behind = own.loc[own["arm"] == baseline]
    centre = _compared(behind, at_step)
    for panel, arm in zip(panels, arms, strict=True):
        hatch_floor(panel, noise, centre=centre)
        _band(panel, behind, GREY, "--", baseline)
        if arm != baseline:
            _band(panel, own.loc[own["arm"] == arm], BLUE, "-", "arm")
        if reference is not None and np.isfinite(reference):
            panel.axhline(reference, color=VERMILION, lw=1, ls=":", label=reference_name)
        if at_step is not None:
            panel.axvline(at_step, color=INK, lw=0.8, ls=":", label=f"compared at step {at_step}")
        panel.set_title(wrap(arm, 32), fontsize=8, loc="left")
        tidy(panel)
    _limits(panels, own)
    _legend(panels)
    figure = panels[0].figure
    figure.supxlabel("step", fontsize=9)
    figure.supylabel(metric, fontsize=9)
    return panels


def _compared(baseline: pd.DataFrame, at_step: int | None) -> float:
    """The baseline's mean at the step at which arms are compared; NaN where it has none."""
    at = baseline["step"].max() if at_step is None else at_step
    means = baseline.loc[baseline["step"] == at, "mean"]
    return float(means.iloc[0]) if len(means) else float("nan")


def _band(axes: Axes, part: pd.DataFrame, colour: str, style: str, name: str) -> None:
    if part.empty:
        return
    mark = "o" if len(part) == 1 else ""
    axes.plot(part["step"], part["mean"], color=colour, ls=style, lw=1.4, label=name, marker=mark, ms=3)
    axes.fill_between(part["step"], part["low"], part["high"], color=colour, alpha=0.18, lw=0)


def _limits(panels: list[Axes], own: pd.DataFrame) -> None:
    """Leave the first steep steps out of view where they would flatten the rest."""
    later = own.loc[own["step"] >= 0.2 * own["step"].max(), ["mean", "low", "high"]].to_numpy(dtype=float)
    later = later[np.isfinite(later)]
    everything = own["mean"].to_numpy(dtype=float)
    if not len(later) or not np.ptp(later):
        return
    span = float(np.ptp(later))
    if np.ptp(everything) > 2.5 * span:
        panels[0].set_ylim(float(later.min()) - 0.15 * span, float(later.max()) + 0.6 * span)


def _legend(panels: list[Axes]) -> None:
    found = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    if found:
        panels[0].figure.legend(
            list(found.values()), list(found), loc="outside upper left", ncols=4, frameon=False, fontsize=8
        )
