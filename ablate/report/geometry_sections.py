"""What the data could tell apart before any training, and whether what it predicted came true."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.term_geometry import (
    LEAST_ARMS,
    RankCorrelation,
    arm_coordinates,
    canonical_columns,
    paired_arms,
    predictions,
    rank_correlation,
)
from ablate.plots import geometry as plots
from ablate.report.blocks import Cell, Picture, Section, Sentence, Table, make_table
from ablate.report.evidence import Evidence
from ablate.report.numbers import interval, number

Block = Table | Picture

ABSENT = "the workload has no term geometry, or it was not measured (`ablate terms FILE` measures it)"
MOST_PAIRS = 20
"""Pairs of arms that are named; the csv has them all."""

ROLES = ("baseline", "comparison", "twin")
"""Arms that a figure shows."""

MOST_ARMS = 40


def geometry(evidence: Evidence) -> Section:
    """Cosines of the terms, their spectrum, how both change over the studied range, and the arms among them."""
    title = "What the data can tell apart"
    facts = evidence.facts.get("geometry")
    if not facts:
        return Section("geometry", title, absent=ABSENT)
    blocks: list[Block] = [*_term_blocks(facts), _range_table(facts)]
    if canonical_columns(evidence.trials):
        blocks += _arm_blocks(evidence)
    pairs = [pair["sentence"] for pair in facts["same_training"]]
    left = [f"{len(pairs) - MOST_PAIRS} more pairs of arms are one training."] if len(pairs) > MOST_PAIRS else []
    remarks = (*(f"{sentence}." for sentence in pairs[:MOST_PAIRS]), *left)
    return Section("geometry", title, tuple(_term_sentences(facts)), remarks, tuple(blocks))


def _term_sentences(facts: Mapping[str, Any]) -> list[Sentence]:
    base = facts["points"][0]
    count = len(facts["terms"])
    rank = base["effective_rank"]
    found = [
        Sentence(
            f"The weight matrices of the {count} terms, known from the reference alone, have an effective rank of "
            f"{number(math.nan if rank is None else rank, 3)}: about so many directions can be told apart over "
            f"{facts['tokens']} training tokens of {facts['examples']} examples."
        )
    ]
    weights = dict(zip(facts["terms"], facts["weights"], strict=True))
    for group in base["groups"]:
        if len(group) > 1:
            names = ", ".join(weights[name] for name in group)
            found.append(
                Sentence(
                    f"{names}: every cosine is at least {facts['threshold']:g}, so left out one at a time each can "
                    "look droppable because the others stay.",
                    "Cannot be told apart",
                )
            )
    if facts["together"]:
        groups = ", ".join(f"[{', '.join(paths)}]" for paths in facts["together"])
        found.append(Sentence(f"`together: [{groups}]` moves each such group as one.", "To paste"))
    return found


def _term_blocks(facts: Mapping[str, Any]) -> list[Block]:
    base = facts["points"][0]
    names = facts["weights"]
    cosines = pd.DataFrame(np.array(base["cosines"], dtype=float), index=names, columns=names)
    rows = [
        (point["change"] or "baseline", position, value, point["effective_rank"])
        for point in facts["points"]
        for position, value in enumerate(point["singular_values"], 1)
    ]
    spectrum = pd.DataFrame(rows, columns=["setting", "number", "singular_value", "effective_rank"])
    inflation = dict(zip(names, base["variance_inflation"], strict=True))
    alt = "Cosines between the weight matrices of the terms, as a heat map with values."
    return [
        Picture("term-cosines", "Cosines of the terms at the baseline's setting", plots.cosines(cosines), alt),
        Table("term_cosines", "Cosines of the terms", cosines.rename_axis("term").reset_index()),
        make_table(
            "variance_inflation",
            "How far each term is made up by the others",
            pd.DataFrame({"term": names, "variance_inflation": [inflation[name] for name in names]}),
            {
                "term": lambda row: Cell(str(row["term"])),
                "variance inflation": lambda row: Cell(_inflation(row["variance_inflation"])),
            },
            note="1 / (1 − R²) of its weight matrix on those of the others; ∞: they make it up exactly.",
        ),
        Picture(
            "term-spectrum",
            "Spectrum of the weight matrices, each of unit norm",
            plots.spectrum(spectrum),
            "Singular values of the weight matrices, the baseline's setting dark, the studied range light.",
        ),
        Table("term_spectrum", "Singular values over the studied range", spectrum),
    ]


def _inflation(value: float | None) -> str:
    return "∞" if value is None or math.isnan(value) else number(value, 3)


def _range_table(facts: Mapping[str, Any]) -> Table:
    numbers = {name: position for position, name in enumerate(facts["terms"], 1)}
    rows = [
        {
            "setting": point["change"] or "baseline",
            "effective_rank": point["effective_rank"],
            "groups": " ".join("{" + " ".join(str(numbers[n]) for n in group) + "}" for group in point["groups"]),
        }
        for point in facts["points"]
    ]
    return make_table(
        "term_range",
        "Over the studied range of alpha, epsilons and mode",
        pd.DataFrame(rows),
        {
            "setting": lambda row: Cell(str(row["setting"])),
            "effective rank": lambda row: Cell(number(row["effective_rank"], 3)),
            "groups": lambda row: Cell(str(row["groups"])),
        },
        note=f"Groups by the numbers of the terms: {', '.join(f'{n} {w}' for n, w in enumerate(facts['weights'], 1))}.",
        fold=True,
    )


def _arm_blocks(evidence: Evidence) -> list[Block]:
    table = arm_coordinates(evidence.trials)
    shown = table.loc[table["scale"].notna()]
    columns = {
        "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
        "scale": lambda row: Cell(number(row["scale"], 4)),
        "β_eff": lambda row: Cell(number(row["beta_eff"], 4)),
        "effective tokens": lambda row: Cell(number(row["effective_token_count"], 4)),
        "distance": lambda row: Cell(number(row["distance"], 3)),
    }
    note = (
        "Arms, of this study or another, with the same direction and β_eff are one training up to the scale. Distance: "
        "root mean square difference of an arm's token weights from the baseline's, each of mean 1. The csv has the "
        "direction along each principal direction of the terms."
    )
    coordinates = make_table(
        "canonical", "Canonical coordinates of the arms", shown, columns, note=note, source=table, fold=True
    )
    pictured = [arm for arm in shown["arm"] if evidence.roles[arm] in ROLES][:MOST_ARMS]
    if len(pictured) < 2 or "direction_2" not in table:
        return [coordinates]
    own = shown.loc[shown["arm"].isin(pictured)]
    alt = "Arms in the plane of the first two principal directions of the terms, numbered, with a key."
    text = f"Arms in the plane of the first two directions: {_in_plane(own)}"
    return [Picture("arms-in-plane", text, plots.arms_in_plane(own), alt), coordinates]


def _in_plane(table: pd.DataFrame) -> str:
    """How much of the squared distances between arms the plane shows."""
    axes = [name for name in table if str(name).startswith("direction_")]
    places = table[axes].to_numpy(dtype=float)
    spread = places.var(axis=0)
    total = float(spread.sum() + (table["outside"].to_numpy(dtype=float) ** 2).mean())
    if not total:
        return "all arms are one point"
    return f"it holds {100 * float(spread[:2].sum()) / total:.0f} % of their squared distances"


def prediction(evidence: Evidence) -> Section:
    """Predicted distance against measured effect, arm by arm, and whether the prediction failed."""
    title = "Predicted against measured"
    if not canonical_columns(evidence.trials):
        return Section("prediction", title, absent=ABSENT)
    if not evidence.has_primary:
        return Section("prediction", title, absent="the primary metric has no value yet")
    name = evidence.primary.name
    alpha = evidence.spec.analysis.alpha
    table = predictions(evidence.trials, metric=name, sesoi=evidence.primary.sesoi, alpha=alpha)
    if table.empty:
        return Section("prediction", title, absent="no finished arm changes the weights of the objective alone")
    sentences = [
        _held("distance", table, "distance"),
        _held("|log β_eff|, relative to the baseline's,", table, "log_beta_ratio"),
        *(_failed(row) for row in table.loc[table["failed"]].to_dict("records")),
    ]
    blocks: list[Block] = [_picture(evidence, table), _prediction_table(evidence, table)]
    pairs = _pairs(evidence)
    sentences += [_pair_failed(row, name) for row in pairs.loc[pairs["failed"]].to_dict("records")]
    if len(pairs):
        blocks.append(Table("same_training", "Arms that are one training, measured", pairs))
    return Section("prediction", title, tuple(s for s in sentences if s is not None), (), tuple(blocks))


def _held(what: str, table: pd.DataFrame, column: str) -> Sentence | None:
    """What the rank correlation says of one prediction; None where it predicts nothing."""
    found = rank_correlation(table[column].to_numpy(dtype=float), table["effect"].to_numpy(dtype=float))
    if math.isnan(found.value):
        return None
    return Sentence(f"{what} and measured effect: Spearman's ρ {_correlation(found)}; {_reading(found)}.", _lead(found))


def _correlation(found: RankCorrelation) -> str:
    if math.isnan(found.low):
        return f"{number(found.value, 2)} over {found.n} arms"
    return f"{number(found.value, 2)} {interval(found.low, found.high)} over {found.n} arms"


def _lead(found: RankCorrelation) -> str:
    if math.isnan(found.low):
        return "Open"
    return "Held" if found.low > 0 else "Failed" if found.high < 0 else "Open"


def _reading(found: RankCorrelation) -> str:
    if math.isnan(found.low):
        return f"fewer than {LEAST_ARMS} arms have no interval"
    if found.low > 0:
        return "arms predicted to be farther from the baseline differ more"
    if found.high < 0:
        return "the prediction failed: arms predicted to be nearer differ more"
    return "these arms cannot tell the prediction from chance"


def _failed(row: Mapping[Any, Any]) -> Sentence:
    return Sentence(
        f"{row['arm']} is predicted to be the baseline's training, yet differs by {number(row['difference'], 3)} "
        f"{interval(row['low'], row['high'])}: the prediction failed here (step size and clipping are not in it).",
        "Failed",
    )


def _pair_failed(row: Mapping[Any, Any], metric: str) -> Sentence:
    return Sentence(
        f"{row['first']} and {row['second']} are predicted to be one training, yet {metric} differs by "
        f"{number(row['difference'], 3)} {interval(row['low'], row['high'])}: the prediction failed here (step size "
        "and clipping are not in it).",
        "Failed",
    )


def _pairs(evidence: Evidence) -> pd.DataFrame:
    """Pairs of arms that are predicted to be one training, with what was measured of them."""
    facts = evidence.facts.get("geometry") or {"same_training": []}
    named: Sequence[tuple[str, str]] = [tuple(pair["arms"]) for pair in facts["same_training"]]
    return paired_arms(
        evidence.trials,
        named,
        metric=evidence.primary.name,
        sesoi=evidence.primary.sesoi,
        alpha=evidence.spec.analysis.alpha,
    )


def _picture(evidence: Evidence, table: pd.DataFrame) -> Picture:
    own = table.sort_values("effect", ascending=False, kind="stable")[:MOST_ARMS].sort_index()
    axes = plots.predicted_against_measured(
        own, metric=evidence.primary.name, sesoi=evidence.primary.sesoi, noise=evidence.noise[0]
    )
    note = (
        f"The {MOST_ARMS} of {len(table)} arms that differ most; the table holds all." if len(table) > len(own) else ""
    )
    alt = "Predicted distance of each arm from the baseline against the size of its measured effect."
    return Picture("predicted-against-measured", "Predicted distance against measured effect", axes, alt, note)


def _prediction_table(evidence: Evidence, table: pd.DataFrame) -> Table:
    return make_table(
        "prediction",
        "Predicted distance and measured effect of each arm",
        table,
        {
            "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
            "distance": lambda row: Cell(number(row["distance"], 3)),
            "|log β_eff ratio|": lambda row: Cell(number(row["log_beta_ratio"], 3)),
            "difference": lambda row: Cell(number(row["difference"], 3), interval(row["low"], row["high"])),
        },
        note="Arms that change anything but the weights of the objective are left out: their distance says nothing.",
        fold=True,
    )
