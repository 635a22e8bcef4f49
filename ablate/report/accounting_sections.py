"""What stands behind the verdicts: effect sizes, other tests, and an account of every planned trial."""

from __future__ import annotations

import math

import pandas as pd

from ablate.analysis.accounting import intention_to_treat, verdict_bounds
from ablate.analysis.beside import paired_tests
from ablate.plots.overview import seed_blocks
from ablate.report.blocks import Cell, Picture, Section, Sentence, Table, make_table
from ablate.report.evidence import Evidence
from ablate.report.numbers import interval, number, p_value
from ablate.report.wording import percent, progress_sentence


def effect_sizes(evidence: Evidence) -> Section:
    """Standardised sizes, what pairing gained, and the classical tests beside."""
    title = "Effect sizes and other tests"
    own = evidence.effects.loc[evidence.effects["metric"] == evidence.primary.name]
    if own.empty or not (own["n_pairs"] > 0).any():
        return Section("effects", title, absent="no arm shares a finished seed with the baseline")
    tests = paired_tests(evidence.trials, metric=evidence.primary.name, sesoi=evidence.primary.sesoi)
    table = own.merge(tests, on="arm", how="left")
    shown = make_table(
        "effects",
        f"Paired effects on {evidence.primary.name}",
        table,
        {
            "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
            "difference": lambda row: Cell(number(row["difference"], 3), interval(row["low"], row["high"])),
            "d_z": lambda row: Cell(number(row["d_z"], 3)),
            "Hedges' g_av": lambda row: Cell(number(row["g_av"], 3)),
            "improves": lambda row: Cell("–" if math.isnan(row["improvement"]) else percent(row["improvement"])),
            "seed correlation": lambda row: Cell(number(row["correlation"], 2)),
            "pairing gain": lambda row: Cell(number(row["pairing_gain"], 2)),
            "p t, Holm": lambda row: Cell(p_value(row["p_t_holm"])),
            "p TOST": lambda row: Cell(p_value(row["p_tost"])),
        },
        note="Marginal 95 % t intervals. Improves: share of pairs in which the arm is better. Pairing gain: how many "
        "times more seeds an unpaired comparison would need. The tests decide nothing; Holm, and Benjamini-Hochberg in "
        "the csv, adjust over the family.",
        fold=True,
    )
    gain = own.loc[own["arm"].map(evidence.roles) == "comparison", "pairing_gain"].median()
    sentences: tuple[Sentence, ...] = ()
    if math.isfinite(gain):
        sentences = (Sentence(f"Pairing by seed is worth {number(gain, 2)} times the seeds (median over arms)."),)
    every = Table("effects_all_metrics", "Paired effects on every declared metric", evidence.effects)
    return Section("effects", title, sentences, (), (shown, every))


def accounting(evidence: Evidence) -> Section:
    """Every planned trial by how it ended, and what the missing ones could change."""
    title = "Accounting"
    sentences = [Sentence(progress_sentence(evidence.states))]
    if not len(evidence.trials):
        return Section("accounting", title, tuple(sentences))
    blocks: list[Table | Picture] = [_ends(evidence)]
    if evidence.has_primary:
        blocks.append(_intention_to_treat(evidence))
        if evidence.primary.sesoi is not None:
            bounds = verdict_bounds(
                evidence.trials,
                metric=evidence.primary.name,
                goal=evidence.primary.goal,
                sesoi=evidence.primary.sesoi,
                alpha=evidence.alpha,
            )
            sentences.append(_bounds_sentence(bounds))
            blocks.append(_bounds(evidence, bounds))
    return Section("accounting", title, tuple(sentences), (), tuple(blocks))


def _ends(evidence: Evidence) -> Picture:
    trials = evidence.trials
    ends = trials["state"].mask((trials["state"] == "FAIL") & (trials["reason"] == "diverged"), "diverged")
    cells = pd.DataFrame({"arm": trials["arm"].astype(str), "seed": trials["seed"], "end": ends})
    wide = cells.drop_duplicates(["arm", "seed"]).pivot(index="arm", columns="seed", values="end")  # noqa: PD010
    wide = wide.reindex(list(evidence.roles)).fillna("none")
    return Picture(
        "seed-blocks", "How every trial ended", seed_blocks(wide), f"Ends of {len(trials)} trials, arms by seeds."
    )


def _intention_to_treat(evidence: Evidence) -> Table:
    table = intention_to_treat(evidence.trials, metric=evidence.primary.name, goal=evidence.primary.goal)
    return make_table(
        "intention_to_treat",
        "Intention to treat: every planned trial",
        table,
        {
            "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
            "planned": lambda row: Cell(str(row["planned"])),
            "complete": lambda row: Cell(str(row["complete"])),
            "diverged": lambda row: Cell(str(row["diverged"])),
            "failed": lambda row: Cell(str(row["failed"])),
            "to run": lambda row: Cell(str(row["unfinished"])),
            "mean of complete": lambda row: Cell(number(row["mean"])),
            "diverged as worst": lambda row: Cell(number(row["mean_worst"])),
        },
        note="Diverged as worst: each diverged trial counted as the worst value that any trial reached.",
        fold=True,
    )


def _bounds_sentence(bounds: pd.DataFrame) -> Sentence:
    missing = int(bounds["n_missing"].sum())
    moved = [str(arm) for arm in bounds.loc[~bounds["holds"].astype(bool), "arm"]]
    if not missing:
        return Sentence("No pair is missing: no verdict depends on what was not observed.")
    pairs = "1 pair is" if missing == 1 else f"{missing} pairs are"
    if not moved:
        return Sentence(f"{pairs} missing; every verdict holds whatever they had shown.")
    return Sentence(f"{pairs} missing; what they would have shown could change the verdict on {', '.join(moved)}.")


def _bounds(evidence: Evidence, bounds: pd.DataFrame) -> Table:
    own = bounds.merge(evidence.contrasts[["arm", "verdict"]], on="arm", how="left")
    return make_table(
        "verdict_bounds",
        "Verdicts under the worst and the best case of what is missing",
        own,
        {
            "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
            "missing pairs": lambda row: Cell(str(row["n_missing"])),
            "verdict": lambda row: Cell(str(row["verdict"]), mark=str(row["verdict"])),
            "all against the arm": lambda row: Cell(row["verdict_if_against"], mark=row["verdict_if_against"]),
            "all for the arm": lambda row: Cell(row["verdict_if_for"], mark=row["verdict_if_for"]),
        },
        note="Each missing pair (failed, diverged, unfinished, on either side) set to the study's largest difference.",
        fold=True,
    )
