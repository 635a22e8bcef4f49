"""What the study concludes: verdicts first, then the controls and the other metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from ablate.plots.forest import forest
from ablate.report.blocks import Cell, Picture, Row, Section, Sentence, Table, file_stem, make_table
from ablate.report.evidence import Evidence
from ablate.report.looks import seed_stages
from ablate.report.numbers import interval, number, p_value
from ablate.report.wording import percent, summary_sentence, verdict_sentence
from ablate.spec.models import Metric, SecondaryMetric

AFTER_EXTENSION = "after extension"
OWN_OBJECTIVE = "eval/neg_elbo_per_token"

#: Arms that have a sentence each; of more, those that differ most do.
MOST_SENTENCES = 24
#: Rows that one forest plot has room for.
MOST_ROWS = 60


def verdicts(evidence: Evidence) -> Section:
    """One sentence and one row a contrast of the primary metric."""
    primary = evidence.primary
    title = f"Verdicts on {primary.name}"
    table = evidence.contrasts
    if not evidence.has_primary:
        return Section(
            "verdicts", title, (Sentence(f"No complete trial has a value of {primary.name} yet: no verdict."),)
        )
    if table.empty:
        return Section("verdicts", title, (Sentence("The study compares no arm with the baseline: no verdict."),))
    said, left_out = evidence.pictured(MOST_SENTENCES, "comparison")
    spoken = table.loc[table["arm"].isin(said)].to_dict("records")
    sentences = [verdict_sentence(row, primary.name, primary.goal, primary.sesoi, evidence.together) for row in spoken]
    if evidence.extended:
        sentences = [replace(one, lead=f"{one.lead} ({AFTER_EXTENSION})") if one.lead else one for one in sentences]
    arms, note = evidence.pictured(MOST_ROWS, "comparison")
    picture = Picture(
        "forest",
        f"Differences to the baseline, simultaneous intervals. {note}".strip(),
        forest(
            table.loc[table["arm"].isin(arms)],
            metric=primary.name,
            goal=primary.goal,
            sesoi=primary.sesoi,
            noise=evidence.noise[0],
        ),
        f"Forest plot: paired difference of {primary.name} with its simultaneous interval for {len(arms)} arms.",
    )
    shown = _contrast_table(evidence, table, "contrasts", "Each arm against the baseline on common seeds")
    closing = (Sentence(_conditional_on(evidence)), *_own_objective(evidence))
    if left_out:
        closing = (Sentence(f"Sentences: {left_out[0].lower()}{left_out[1:]}"), *closing)
    return Section("verdicts", title, (*_summary(table), *sentences, *closing), _remarks(evidence), (picture, shown))


def _summary(table: pd.DataFrame) -> tuple[Sentence, ...]:
    if table["verdict"].isna().all():
        return ()
    return (Sentence(summary_sentence(list(table["verdict"]))),)


def _contrast_table(evidence: Evidence, table: pd.DataFrame, name: str, title: str) -> Table:
    primary = evidence.primary
    return make_table(
        name,
        title,
        table,
        {
            "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
            "verdict": lambda row: _verdict_cell(evidence, row),
            "difference": lambda row: Cell(number(row["difference"], 3), href=evidence.anchors[row["arm"]]),
            "simultaneous interval": lambda row: Cell(interval(row["low"], row["high"])),
            "p adjusted": lambda row: Cell(p_value(row["p_adjusted"])),
            "pairs": lambda row: _pairs_cell(evidence, row),
        },
        note=f"Difference: mean of arm minus baseline over seeds where both finished ({primary.goal} {primary.name}). "
        f"Intervals hold together at {percent(1 - evidence.alpha)}; p adjusted: max-T over sign flips of whole seeds.",
    )


def _verdict_cell(evidence: Evidence, row: Row) -> Cell:
    verdict = row["verdict"] if isinstance(row["verdict"], str) else "none"
    notes = [row["reason"]] if row["reason"] else []
    notes += [AFTER_EXTENSION] if evidence.extended and verdict != "none" else []
    notes += ["rate shift"] if row["arm"] in evidence.shifted else []
    return Cell(verdict, ", ".join(notes), mark=verdict)


def _pairs_cell(evidence: Evidence, row: Row) -> Cell:
    lost = [f"{row['n_dropped']} dropped"] if row["n_dropped"] else []
    lost += [f"{row['n_diverged']} diverged"] if row["n_diverged"] else []
    return Cell(str(row["n_pairs"]), ", ".join(lost), href=evidence.anchors[row["arm"]])


def _remarks(evidence: Evidence) -> tuple[str, ...]:
    """What a reader must not miss before believing a verdict."""
    remarks = [
        f"Post hoc: {' and '.join(change.get('changed', ['the analysis']))} changed on "
        f"{change.get('time', 'an unknown date')}, after {change.get('finished_trials', 'some')} trials had finished."
        for change in evidence.changes
    ]
    stages = seed_stages(evidence.looks)
    if evidence.extended:
        remarks.append(
            f"Verdicts are after extension: outcomes were looked at with {', '.join(map(str, stages))} seeds, and "
            f"analysis.looks declared {evidence.spec.analysis.looks}. Adding seeds until something is significant "
            "(at 8, 12, 16, 24) errs in 12 % of studies, not 5 %. Declare the looks before the first one."
        )
    elif evidence.spec.analysis.looks > 1:
        remarks.append(
            f"Look {max(1, len(stages))} of {evidence.spec.analysis.looks} declared: each spends "
            f"{evidence.alpha:.3g} of the error of {evidence.spec.analysis.alpha:g}."
        )
    waiting = int(evidence.states[["WAITING", "RUNNING"]].to_numpy().sum())
    if waiting:
        words = "1 planned trial has" if waiting == 1 else f"{waiting} planned trials have"
        remarks.append(f"{words} not ended yet: every number here is provisional.")
    flagged = [str(arm) for arm in evidence.noise[1].loc[evidence.noise[1]["flagged"].astype(bool), "arm"]]
    if flagged:
        remarks.append(
            f"The A/A arm {', '.join(flagged)} was flagged: the same configuration and seeds differ from the baseline "
            "by more than chance. Something other than the ablation moves the metric; no verdict can be trusted until "
            "it is found."
        )
    return tuple(remarks)


def _conditional_on(evidence: Evidence) -> str:
    """What was not varied, and so is not in any interval."""
    vary = set(evidence.spec.seeds.vary)
    named = (("data set", "data"), ("split", "split"), ("reference", "reference"))
    fixed = [f"one {name}" for name, key in named if key not in vary]
    varied = "seeds of training" if vary == {"training"} else f"seeds that vary {', '.join(sorted(vary))}"
    if not fixed:
        return f"The intervals are over {varied}: they hold for the population these are drawn from."
    listed = ", ".join(fixed[:-1]) + (" and " if len(fixed) > 1 else "") + fixed[-1]
    return (
        f"The intervals are over {varied}, and conditional on {listed}: another one can move every arm together or "
        "apart. With a reference effect of half the paired SD, eight seeds alone have a true error of .22, not .05."
    )


def _own_objective(evidence: Evidence) -> tuple[Sentence, ...]:
    if evidence.primary.name != OWN_OBJECTIVE:
        return ()
    return (
        Sentence(f"{OWN_OBJECTIVE} is raw_weight's own objective at β_eff 1: an arm with that term has trained on it."),
    )


def controls(evidence: Evidence) -> Section:
    """The A/A noise floor, and the rescaled and matched twins."""
    floor, aa = evidence.noise
    primary = evidence.primary
    twins = evidence.contrast_table(primary, "twin")
    if aa.empty and twins.empty:
        return Section("controls", "Controls", absent="no A/A arm, no rescaled or matched twin (`controls`)")
    sentences = []
    for row in aa.to_dict("records"):
        verdict = "flagged" if row["flagged"] else "not flagged"
        sentences.append(
            Sentence(
                f"{row['arm']} repeats the baseline with other streams of data order, latents and dropout: it differs "
                f"by {number(row['difference'], 3)} over {row['n_pairs']} seeds (p = {p_value(row['p_value'])}): "
                f"{verdict}.",
                "A/A",
                "FAIL" if row["flagged"] else "COMPLETE",
            )
        )
    if math.isfinite(floor):
        sentences.append(
            Sentence(f"Noise floor: mean differences up to ±{number(floor, 2)} come from these streams alone (95 %).")
        )
    blocks: list[Table | Picture] = []
    if not twins.empty:
        sentences += _twin_sentences(evidence, twins)
        blocks.append(
            Picture(
                "forest-twins",
                "Rescaled and matched twins against the baseline",
                forest(twins, metric=primary.name, goal=primary.goal, sesoi=primary.sesoi, noise=floor),
                f"Forest plot of {len(twins)} twins.",
            )
        )
        blocks.append(_contrast_table(evidence, twins, "twins", "Twins: a family of tests of their own"))
    return Section("controls", "Controls", tuple(sentences), (), tuple(blocks))


def _twin_sentences(evidence: Evidence, twins: pd.DataFrame) -> list[Sentence]:
    """A twin beside its arm: whether what an arm lost was the term's information or its size."""
    arms = evidence.contrasts.set_index("arm")["verdict"].to_dict()
    sentences = [
        Sentence(
            "A twin has the arm's change and the baseline's mean effective token weight, so that β_eff and the step's "
            "scale are the baseline's: where arm and twin agree the change itself matters, where they don't, its size."
        )
    ]
    for row in twins.to_dict("records"):
        arm = str(row["arm"]).rpartition(" ~")[0]
        if isinstance(row["verdict"], str) and isinstance(arms.get(arm), str):
            sentences.append(Sentence(f"{arm} is {arms[arm]}, {row['arm']} is {row['verdict']}.", "", row["verdict"]))
    return sentences


def secondary(evidence: Evidence) -> Section:
    """The other declared metrics; they decide nothing."""
    title = "Secondary metrics (exploratory)"
    metrics = [metric for metric in evidence.compared if metric.name != evidence.primary.name]
    if not metrics:
        return Section("secondary", title, absent="no secondary metric was declared and measured")
    blocks = tuple(_secondary_table(evidence, metric) for metric in metrics)
    sentence = Sentence("Each metric is a family of its own; nothing is adjusted over metrics, so these explore.")
    return Section("secondary", title, (sentence,), (), blocks)


def _secondary_table(evidence: Evidence, metric: Metric | SecondaryMetric) -> Table:
    table = evidence.contrast_table(metric)
    columns = {
        "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
        "difference": lambda row: Cell(number(row["difference"], 3)),
        "simultaneous interval": lambda row: Cell(interval(row["low"], row["high"])),
        "p adjusted": lambda row: Cell(p_value(row["p_adjusted"])),
        "pairs": lambda row: _pairs_cell(evidence, row),
    }
    if metric.sesoi is not None and metric.goal is not None:
        columns["verdict"] = lambda row: _verdict_cell(evidence, row)
    goal = metric.goal or "no better side declared"
    name = file_stem(f"secondary-{metric.name}")
    return make_table(name, f"{metric.name} ({goal})", table, columns, fold=True)
