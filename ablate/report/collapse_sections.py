"""Posterior collapse, named with the setting that most likely caused it."""

from __future__ import annotations

import math

import pandas as pd

from ablate.analysis.collapse import PER_UNIT, SHARE, collapse
from ablate.report.blocks import Cell, Row, Section, Sentence, make_table
from ablate.report.evidence import Evidence
from ablate.report.numbers import number
from ablate.report.wording import percent

TITLE = "Posterior collapse"


def posterior_collapse(evidence: Evidence) -> Section:
    """Arms whose z says nothing of the data, and why most likely."""
    table = collapse(evidence.trials, evidence.curves, evidence.spec.baseline)
    if table.empty or not table["n"].any():
        return Section("collapse", TITLE, absent="the workload measured no rate and distortion")
    hit = table.loc[table["collapsed"] > 0]
    rule = (
        f"A posterior counts as collapsed where KL is under {PER_UNIT} nats a latent dimension or group and the rate "
        f"under {percent(SHARE)} of the distortion: z then can't change the reconstruction by more."
    )
    if hit.empty:
        return Section("collapse", TITLE, (Sentence(f"No trial's posterior collapsed. {rule}"),))
    shown = make_table(
        "collapse",
        "Collapsed arms",
        hit,
        {
            "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
            "collapsed": lambda row: Cell(f"{row['collapsed']} of {row['n']}"),
            "KL a unit": lambda row: Cell(_number(row["kl_per_unit"])),
            "rate / distortion": lambda row: Cell(_number(row["rate_share"])),
            "β_eff": lambda row: Cell(_number(row["effective_beta"])),
            "most likely because of": lambda row: Cell(row["setting"] or "–"),
        },
        note=rule,
        source=table,
    )
    return Section("collapse", TITLE, tuple(_sentence(row) for row in hit.to_dict("records")), (), (shown,))


def _sentence(row: Row) -> Sentence:
    nats = "" if math.isnan(row["kl_per_unit"]) else f"KL {_number(row['kl_per_unit'])} nats a latent unit, "
    text = f"{row['collapsed']} of {row['n']} trials: {nats}rate {_number(row['rate_share'])} of the distortion. "
    text += f"Most likely because {row['reason']}." if row["setting"] else f"Because: {row['reason']}."
    if row["falling"]:
        text += f" In {row['falling']} the distortion still fell in the second half of training: it may be too short."
    return Sentence(text, f"{row['arm']} collapsed", "needed")


def _number(value: float) -> str:
    return "–" if pd.isna(value) else number(value, 2)
