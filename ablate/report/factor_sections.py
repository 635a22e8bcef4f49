"""What the factors do beyond one at a time: interactions, coalitions, doses, importance, configurations."""

from __future__ import annotations

import math

import pandas as pd

from ablate.analysis.arms import arm_means
from ablate.analysis.configurations import arm_configurations, design_names, identity, is_number
from ablate.analysis.dose_response import dose_paths, dose_response
from ablate.analysis.factorial import factorial_effects, interaction_matrix
from ablate.analysis.importance import LEAST_CONFIGURATIONS, SHUFFLES, importance
from ablate.analysis.shapley import shapley
from ablate.plots import factors as plots
from ablate.report.blocks import Cell, Picture, Section, Sentence, Table, file_stem, make_table
from ablate.report.evidence import BASELINE, Evidence
from ablate.report.numbers import interval, number, p_value

Block = Table | Picture


def factorial(evidence: Evidence) -> Section:
    """Main effects and pairwise interactions of each two-level design."""
    title = "Main effects and interactions"
    if not evidence.has_primary:
        return Section("factorial", title, absent="the primary metric has no value yet")
    designs = design_names(evidence.trials, "factorial", "grid")
    if not designs:
        return Section("factorial", title, absent="no factorial or grid design")
    sentences: list[Sentence] = []
    blocks: list[Block] = []
    for design in designs:
        try:
            table = factorial_effects(
                evidence.trials, metric=evidence.primary.name, design=design, alpha=evidence.alpha
            )
        except ValueError as problem:
            sentences.append(Sentence(f"{problem}.", design))
            continue
        if table.empty:
            sentences.append(Sentence("no factor moves in it.", design))
            continue
        table = table.assign(term=[_short(evidence, term) for term in table["term"]])
        sentences.append(_factorial_sentence(design, table))
        blocks += _factorial_blocks(evidence, design, table)
    return Section("factorial", title, tuple(sentences), (), tuple(blocks))


def _factorial_sentence(design: str, table: pd.DataFrame) -> Sentence:
    found = table.loc[(table["order"] == 2) & (table["low"] * table["high"] > 0) & table["high"].map(math.isfinite)]
    pairs = table.loc[table["order"] == 2]
    if pairs.empty:
        text = "main effects only; these arms can't determine the pairwise interactions, and aliases are in the table."
    elif found.empty:
        text = f"none of {len(pairs)} pairwise interactions can be told from 0."
    else:
        text = f"interactions told from 0: {', '.join(found['term'])}."
    return Sentence(text, design)


def _factorial_blocks(evidence: Evidence, design: str, table: pd.DataFrame) -> list[Block]:
    shown = make_table(
        design,
        f"Effects of {design}, averaged over the other factors",
        table,
        {
            "term": lambda row: Cell(row["term"], _aliases(evidence, row["aliases"])),
            "effect": lambda row: Cell(number(row["effect"], 3)),
            "simultaneous interval": lambda row: Cell(interval(row["low"], row["high"])),
            "p adjusted": lambda row: Cell(p_value(row["p_adjusted"])),
            "p BH": lambda row: Cell(p_value(row["p_bh"])),
            "seeds": lambda row: Cell(str(row["n_seeds"])),
        },
        note="Effect of moving the factor off its baseline value; of a pair: how much one changes the other. Unlike "
        "leave-one-out, averaged over the other factors. = names an exact alias, ~ a partial one.",
        fold=True,
    )
    if not (table["order"] == 2).any():
        return [shown]
    axes = plots.interactions(interaction_matrix(table), metric=evidence.primary.name, noise=evidence.noise[0])
    alt = f"Heat map of pairwise interactions on {evidence.primary.name}; main effects on the diagonal."
    note = "Hatched: within the A/A noise floor." if math.isfinite(evidence.noise[0]) else ""
    return [Picture(f"interactions-{design}", "Interactions; framed: main effects", axes, alt, note), shown]


def _short(evidence: Evidence, term: str) -> str:
    return " × ".join(evidence.names.get(path, path) for path in term.split(" × "))


def _aliases(evidence: Evidence, aliases: str) -> str:
    shown = []
    for alias in aliases.split("; ") if aliases else []:
        for sign in ("= -", "=", "~"):
            if alias.startswith(f"{sign} "):
                shown.append(f"{sign} {_short(evidence, alias.removeprefix(f'{sign} '))}")
                break
    return "; ".join(shown)


def coalitions(evidence: Evidence) -> Section:
    """Shapley values of the terms."""
    title = "Shapley values of the terms"
    if not evidence.has_primary:
        return Section("shapley", title, absent="the primary metric has no value yet")
    table = shapley(evidence.trials, metric=evidence.primary.name, alpha=evidence.alpha)
    if table.empty:
        return Section("shapley", title, absent="not every coalition of terms was run (a full factorial does)")
    table = table.assign(term=[_short(evidence, term) for term in table["term"]])
    axes = plots.shapley(table, metric=evidence.primary.name, noise=evidence.noise[0])
    over = "all coalitions" if table["empty_run"].all() else "all coalitions but the empty one, which can't be trained"
    picture = Picture("shapley", "Shapley values beside leave-one-out", axes, f"Shapley values of {len(table)} terms.")
    shown = make_table(
        "shapley",
        "Shapley values",
        table,
        {
            "term": lambda row: Cell(row["term"]),
            "effect of removing": lambda row: Cell(number(row["shapley"], 3), interval(row["low"], row["high"])),
            "left out alone": lambda row: Cell(number(row["leave_one_out"], 3)),
            "p adjusted": lambda row: Cell(p_value(row["p_adjusted"])),
            "seeds": lambda row: Cell(str(row["n_seeds"])),
        },
        note=f"Effect of removing a term, averaged over {over} of the others.",
        fold=True,
    )
    text = "Where the two differ, what a term does depends on its company: terms that do the same work share it."
    return Section("shapley", title, (Sentence(text),), (), (picture, shown))


def doses(evidence: Evidence) -> Section:
    """Dose-response of each numeric factor that was moved alone."""
    title = "Dose-response"
    if not evidence.has_primary:
        return Section("doses", title, absent="the primary metric has no value yet")
    blocks: list[Block] = []
    for path in dose_paths(evidence.trials):
        table = dose_response(evidence.trials, metric=evidence.primary.name, path=path, alpha=evidence.alpha)
        if not (table["n_pairs"] > 0).sum() > 1:
            continue
        name = evidence.names[path]
        axes = plots.dose_response(
            table, metric=evidence.primary.name, path=name, sesoi=evidence.primary.sesoi, noise=evidence.noise[0]
        )
        alt = f"Difference of {evidence.primary.name} to the baseline over {name}, with a simultaneous band."
        blocks.append(Picture(file_stem(f"dose-{name}"), f"Dose-response of {name}", axes, alt))
        blocks.append(Table(file_stem(f"dose-{name}"), f"Dose-response of {name}", table))
    if not blocks:
        return Section("doses", title, absent="no factor takes three numbers with all else at the baseline")
    text = "Bands are simultaneous over the values of one factor. Grey: too small to matter. Hatched: A/A noise floor."
    return Section("doses", title, (Sentence(text),), (), tuple(blocks))


def importances(evidence: Evidence) -> Section:
    """Importance of the factors by two measures, against shuffled outcomes."""
    title = "Importance of the factors"
    if not evidence.has_primary:
        return Section("importance", title, absent="the primary metric has no value yet")
    blocks: list[Block] = []
    sentences: list[Sentence] = []
    for method, name in (("ped_anova", "PED-ANOVA"), ("fanova", "fANOVA")):
        table = importance(
            evidence.trials,
            metric=evidence.primary.name,
            goal=evidence.primary.goal,
            method=method,  # type: ignore[arg-type]
        )
        if table.empty:
            continue
        table = table.assign(factor=[evidence.names[path] for path in table["factor"]])
        told = list(table.loc[~table["noise"].astype(bool), "factor"])
        text = f"told from noise: {', '.join(told)}." if told else "no factor can be told from noise."
        sentences.append(Sentence(text, name))
        note = (
            f"Line: what {SHUFFLES[method]} shuffles of the outcomes give. Grey bars can't be told from them; beside a "
            "factor that dominates, a small true effect may be grey."
        )
        alt = f"Importance of {len(table)} factors by {name} with its permutation null."
        blocks.append(Picture(f"importance-{method}", f"Importance by {name}", plots.importance(table), alt, note))
        blocks.append(Table(f"importance-{method}", f"Importance by {name}", table))
    if not blocks:
        reason = f"fewer than {LEAST_CONFIGURATIONS} finished configurations (searches and grids have them)"
        return Section("importance", title, absent=reason)
    return Section("importance", title, tuple(sentences), (), tuple(blocks))


def weights(evidence: Evidence) -> Section:
    """Parallel coordinates: the numeric factors of each arm and its outcome."""
    title = "Configurations and outcomes"
    name = evidence.primary.name
    if not evidence.has_primary:
        return Section("weights", title, absent="the primary metric has no value yet")
    arms = [arm for arm, role in evidence.roles.items() if role in ("baseline", "comparison", "search")]
    table = arm_configurations(evidence.trials, arms)
    chosen = [path for path in table if table[path].map(is_number).all() and len(set(table[path].map(identity))) > 1]
    if len(chosen) < 2:
        return Section("weights", title, absent="fewer than two numeric factors move")
    means = arm_means(evidence.trials, [name]).set_index("arm")["mean"]
    shown = table[chosen].astype(float).set_axis([evidence.names[str(path)] for path in chosen], axis=1)
    shown = shown.assign(**{name: means.reindex(shown.index)}).dropna(subset=[name])
    if shown.empty:
        return Section("weights", title, absent="no arm has a finished value")
    names = [str(column) for column in shown if column != name]
    axes = plots.parallel_weights(shown.reset_index(names="arm"), columns=names, metric=name, baseline=BASELINE)
    alt = f"Parallel coordinates of {len(chosen)} factors and {name} for {len(shown)} arms."
    picture = Picture("parallel-weights", "Each arm's factors and its outcome; black: the baseline", axes, alt)
    return Section("weights", title, (), (), (picture, Table("configurations", title, shown.reset_index(names="arm"))))
