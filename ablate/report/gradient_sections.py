"""Where the terms pull the parameters of the baseline, beside where their weight matrices say they do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.gradient_geometry import gradient_cosines
from ablate.analysis.term_geometry import rank_correlation
from ablate.plots import geometry as plots
from ablate.report.blocks import Cell, Picture, Section, Sentence, Table, make_table
from ablate.report.evidence import BASELINE, Evidence
from ablate.report.numbers import interval, number


def gradients(evidence: Evidence) -> Section:
    """Cosines of the terms' parameter gradients in the baseline, with the predicted ones beside them."""
    title = "Gradients of the terms"
    if not len(evidence.trials):
        return Section("gradients", title, absent="the study has no trial")
    alpha = evidence.spec.analysis.alpha
    table = gradient_cosines(evidence.trials, evidence.curves, baseline=BASELINE, alpha=alpha)
    if table.empty:
        asked = evidence.spec.metrics.gradient_cosines
        why = "no trial of the baseline has finished with them" if asked else "not asked for"
        return Section("gradients", title, absent=f"{why} (`metrics: {{gradient_cosines: true}}` measures them)")
    predicted = _predicted(evidence.facts.get("geometry"))
    table["predicted"] = [
        predicted.get((first, second), math.nan) for first, second in zip(table["first"], table["second"], strict=True)
    ]
    blocks = (_picture(table), _table(table))
    return Section("gradients", title, tuple(_sentences(table)), (), blocks)


def _predicted(facts: Mapping[str, Any] | None) -> dict[tuple[str, str], float]:
    """Cosine of the weight matrices of each pair of weights at the baseline's setting."""
    if not facts:
        return {}
    names, cosines = facts["weights"], facts["points"][0]["cosines"]
    return {
        (first, second): math.nan if cosines[i][j] is None else cosines[i][j]
        for i, first in enumerate(names)
        for j, second in enumerate(names)
    }


def _sentences(table: pd.DataFrame) -> list[Sentence]:
    known = table.loc[table["predicted"].notna()]
    if known.empty:
        return []
    gap = (known["mean"] - known["predicted"]).abs().to_numpy(dtype=float)
    far = known.iloc[int(gap.argmax())]
    order = rank_correlation(known["predicted"].to_numpy(dtype=float), known["mean"].to_numpy(dtype=float)).value
    ranked = f"; over the {len(known)} pairs their ranks agree with Spearman's ρ {number(order, 2)}"
    return [
        Sentence(
            "At the last evaluation of the baseline the cosines of the parameter gradients differ from those of the "
            f"weight matrices by {number(float(gap.mean()), 2)} on average, most for {far['first']} and "
            f"{far['second']} ({number(far['mean'], 2)}, predicted {number(far['predicted'], 2)})"
            f"{'' if math.isnan(order) else ranked}."
        )
    ]


def _picture(table: pd.DataFrame) -> Picture:
    names = list(dict.fromkeys([*table["first"], *table["second"]]))
    values = pd.DataFrame(np.eye(len(names)), index=names, columns=names)
    for row in table.to_dict("records"):
        values.loc[row["first"], row["second"]] = values.loc[row["second"], row["first"]] = row["mean"]
    axes = plots.cosines(values, label="cosine of the parameter gradients")
    alt = "Cosines between the parameter gradients of the terms at the last evaluation of the baseline, as a heat map."
    return Picture("gradient-cosines", "Parameter gradients of the terms at the last evaluation", axes, alt)


def _table(table: pd.DataFrame) -> Table:
    return make_table(
        "gradient_cosines",
        "Cosines of the terms: weight matrices and parameter gradients",
        table,
        {
            "pair": lambda row: Cell(str(row["first"]), str(row["second"])),
            "predicted": lambda row: Cell(number(row["predicted"], 3)),
            "at the first evaluation": lambda row: Cell(number(row["start"], 3)),
            "at the last": lambda row: Cell(number(row["mean"], 3), interval(row["low"], row["high"])),
        },
        note="Mean over the baseline's seeds, with its t interval; one held-out batch, without dropout.",
        fold=True,
    )
