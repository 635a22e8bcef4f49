"""The sections of a report, in reading order: evidence in, section out. Each one stands for any state of a study.

A section that has nothing to show returns one sentence that says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from ablate.analysis.learning import arm_curves
from ablate.plots.curves import learning_curves
from ablate.plots.diagnostics import by_arm
from ablate.plots.forest import forest
from ablate.report.blocks import Cell, Picture, Section, Sentence, Table
from ablate.report.evidence import BASELINE, Evidence
from ablate.report.numbers import interval, number, p_value, with_half
from ablate.report.wording import progress_sentence, verdict_sentence

Row = Mapping[Any, Any]

ARM_PARTS = {"n": "n", "mean": "mean", "low": "low", "high": "high"}
PAIR_PARTS = {
    "n_pairs": "n_pairs", "difference": "difference", "low": "difference_low", "high": "difference_high",
}  # fmt: skip

VERDICT_HEAD = ("arm", "verdict", "difference", "simultaneous interval", "p adjusted", "pairs")


def arm_anchor(evidence: Evidence, arm: str) -> str:
    """Where the page lists an arm's trials."""
    return f"#arm-{list(evidence.roles).index(arm)}"


def verdicts(evidence: Evidence) -> Section:
    """One sentence and one row a contrast of the primary metric."""
    primary = evidence.primary
    title = f"Verdicts on {primary.name}"
    table = evidence.contrasts
    if primary.name not in evidence.measured:
        return Section(
            "verdicts", title, (Sentence(f"No complete trial has a value of {primary.name} yet: no verdict."),)
        )
    if table.empty:
        return Section("verdicts", title, (Sentence("The study compares no arm with the baseline: no verdict."),))
    sentences = tuple(
        verdict_sentence(row, metric=primary.name, goal=primary.goal, sesoi=primary.sesoi)
        for row in table.to_dict("records")
    )
    shown = Table(
        "contrasts",
        "Each arm against the baseline on common seeds",
        table,
        VERDICT_HEAD,
        tuple(_contrast_row(evidence, row) for row in table.to_dict("records")),
        note=f"Difference: mean of arm minus baseline over seeds where both finished ({primary.goal} "
        f"{primary.name}). The intervals hold together at {1 - evidence.alpha:.4g}.",
    )
    picture = Picture(
        "forest",
        "Differences to the baseline",
        forest(table, metric=primary.name, goal=primary.goal, sesoi=primary.sesoi),
        f"Forest plot: paired difference of {primary.name} with its simultaneous interval for {len(table)} arms.",
    )
    return Section("verdicts", title, sentences, (), (picture, shown))


def _contrast_row(evidence: Evidence, row: Row) -> tuple[Cell, ...]:
    verdict = row["verdict"] or "none"
    dropped = [f"{row['n_dropped']} dropped"] if row["n_dropped"] else []
    diverged = [f"{row['n_diverged']} diverged"] if row["n_diverged"] else []
    return (
        Cell(row["arm"], href=arm_anchor(evidence, row["arm"])),
        Cell(verdict, row["reason"], mark=verdict),
        Cell(number(row["difference"], 3)),
        Cell(interval(row["low"], row["high"])),
        Cell(p_value(row["p_adjusted"])),
        Cell(str(row["n_pairs"]), ", ".join(dropped + diverged), href=arm_anchor(evidence, row["arm"])),
    )


def arms(evidence: Evidence) -> Section:
    """How each arm's trials ended and its mean of each declared metric, with the paired difference below it."""
    states = evidence.states
    sentence = progress_sentence(states)
    if not len(states):
        return Section("arms", "Arms", (Sentence(sentence),))
    head = ("arm", "complete", *(metric.name for metric in evidence.compared))
    frame = states.drop(columns="role").merge(_wide(evidence), on="arm", how="left")
    rows = tuple(_arm_row(evidence, row) for row in states.to_dict("records"))
    note = (
        "Mean over seeds ± half of the 95 % t interval; below it the mean paired difference to the baseline on "
        "common seeds, likewise. These intervals are one at a time; the verdicts use simultaneous ones."
    )
    return Section("arms", "Arms", (Sentence(sentence),), (), (Table("arms", "Arms", frame, head, rows, note),))


def _wide(evidence: Evidence) -> pd.DataFrame:
    """Columns `<metric>.<part>` for each declared metric: the mean and the paired difference, an arm a row."""
    table = pd.DataFrame({"arm": list(evidence.roles)})
    for metric in evidence.compared:
        for source, parts in ((evidence.means, ARM_PARTS), (evidence.effects, PAIR_PARTS)):
            own = source.loc[source["metric"] == metric.name, ["arm", *parts]]
            named = own.rename(columns={old: f"{metric.name}.{new}" for old, new in parts.items()})
            table = table.merge(named, on="arm", how="left")
    return table


def _arm_row(evidence: Evidence, row: Row) -> tuple[Cell, ...]:
    arm = row["arm"]
    lost = [f"{row['diverged']} diverged"] if row["diverged"] else []
    accidents = row["FAIL"] - row["diverged"]
    lost += [f"{accidents} failed"] if accidents else []
    cells = [
        Cell(arm, href=arm_anchor(evidence, arm)),
        Cell(f"{row['COMPLETE']} of {row['n']}", ", ".join(lost), href=arm_anchor(evidence, arm)),
    ]
    for metric in evidence.compared:
        own = evidence.means.loc[(evidence.means["arm"] == arm) & (evidence.means["metric"] == metric.name)]
        paired = evidence.effects.loc[(evidence.effects["arm"] == arm) & (evidence.effects["metric"] == metric.name)]
        text = with_half(own["mean"].iloc[0], own["high"].iloc[0] - own["mean"].iloc[0])
        infinite = int(own["n_infinite"].iloc[0])
        text += f" ({infinite} infinite)" if infinite else ""
        sub = ""
        if len(paired) and paired["n_pairs"].iloc[0]:
            difference = float(paired["difference"].iloc[0])
            sub = "Δ " + with_half(difference, float(paired["high"].iloc[0]) - difference, signed=True)
        cells.append(Cell(text, sub, href=arm_anchor(evidence, arm)))
    return tuple(cells)


def curves(evidence: Evidence) -> Section:
    """The primary metric over steps by arm, with bands."""
    title = "Learning curves"
    name = evidence.primary.name
    table = arm_curves(evidence.trials, evidence.curves, [name])
    if table.empty:
        return Section("curves", title, (Sentence(f"No trial has reported {name} yet."),))
    shown = [arm for arm in evidence.roles if evidence.roles[arm] != "search"]
    part = table.loc[table["arm"].isin(shown)]
    part = table if part.empty else part
    at = evidence.primary.at
    reference = evidence.fact("eval/zfree_nll_per_token", "reference_nll_per_token")
    axes = learning_curves(
        part,
        metric=name,
        reference=None if math.isnan(reference) else reference,
        at_step=int(at.partition(":")[2]) if at.startswith("step:") else None,
    )
    picture = Picture(
        "learning-curves", f"{name} over steps", axes[0], f"Mean and 95 % band over seeds of {name} for each arm."
    )
    return Section("curves", title, (), (), (picture, Table("learning_curves", "Learning curves", table)))


def diagnostics(evidence: Evidence) -> Section:
    """Small multiples of the diagnostics by arm."""
    title = "Diagnostics of the token weighting"
    names = evidence.diagnostics
    if not names:
        return Section(
            "diagnostics", title, (Sentence("This workload has logged no diagnostics of a token weighting."),)
        )
    kept = evidence.means.loc[evidence.means["metric"].isin(names)]
    shown = kept.loc[kept["arm"].map(evidence.roles) != "search"]
    axes = by_arm(shown, metrics=names, baseline=BASELINE)
    picture = Picture(
        "diagnostics-by-arm", "Diagnostics by arm", axes[0], f"Mean and t interval of {len(names)} diagnostics by arm."
    )
    return Section("diagnostics", title, (), (), (picture, Table("diagnostics", "Diagnostics by arm", kept)))


def trials(evidence: Evidence) -> Section:
    """Every trial with its log and MLflow run, an arm a table: where each number comes from."""
    blocks = []
    for index, (arm, own) in enumerate(evidence.trials.groupby("arm", sort=False)):
        rows = tuple(_trial_row(evidence, row) for row in own.to_dict("records"))
        head = ("trial", "seed", "state", evidence.primary.name, "seconds", "MLflow run")
        frame = pd.DataFrame()
        blocks.append(Table("", str(arm), frame, head, rows, fold=True, anchor=f"arm-{index}"))
    everything = Table("trials", "All trials", evidence.trials)
    if not blocks:
        return Section("trials", "Trials", (Sentence("The study has no trial."),), (), (everything,))
    sentence = "Each arm with its trials: identity, end, log and MLflow run. The whole frame is tables/trials.csv."
    return Section("trials", "Trials", (Sentence(sentence),), (), (*blocks, everything))


def _trial_row(evidence: Evidence, row: Row) -> tuple[Cell, ...]:
    folder = evidence.trial_folder(str(row["trial_id"]))
    value = row.get(f"metric.{evidence.primary.name}", math.nan)
    seconds = row.get("duration_s", math.nan)
    run = row.get("mlflow_run_id")
    return (
        Cell(str(row["trial_id"]), href=f"{folder}/log.txt" if folder else ""),
        Cell(str(row["seed"])),
        Cell(str(row["state"]), _text(row.get("reason")), mark=str(row["state"])),
        Cell(number(_float(value))),
        Cell(number(_float(seconds), 3)),
        Cell(_text(run)),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


#: The report, in reading order.
SECTIONS: dict[str, Callable[[Evidence], Section]] = {
    "verdicts": verdicts,
    "arms": arms,
    "curves": curves,
    "diagnostics": diagnostics,
    "trials": trials,
}
