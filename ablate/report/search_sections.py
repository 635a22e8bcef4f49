"""What was chosen: searches, their winners on fresh seeds, tuned nuisance factors; and effects over new data."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from ablate.analysis.outcomes import is_weight_dependent
from ablate.analysis.random_effects import random_effects
from ablate.analysis.search import expected_best, search_names, search_progress, shrinkage
from ablate.plots import search as plots
from ablate.report.blocks import Cell, Picture, Row, Section, Sentence, Table, make_table
from ablate.report.evidence import BASELINE, Evidence
from ablate.report.numbers import interval, number, p_value
from ablate.report.wording import percent
from ablate.spec.models import Design

Block = Table | Picture

#: Rows of a search's table; the csv holds all.
MOST_SHOWN = 10


def searches(evidence: Evidence) -> Section:
    """What each search proposed, in order, and the best of it; chosen by numbers, so none of it is a result."""
    title = "Searches"
    designs = {design.name: design for design in evidence.spec.designs if design.search is not None}
    names = [name for name in search_names(evidence.trials) if name in designs] if len(evidence.trials) else []
    if not names:
        return Section("searches", title, absent="no search has proposed an arm")
    sentences: list[Sentence] = []
    blocks: list[Block] = []
    for name in names:
        design = designs[name]
        assert design.search is not None
        for objective in design.search.objectives:
            if is_weight_dependent(objective.name):
                continue
            table = search_progress(evidence.trials, search=name, objective=objective.name, goal=objective.goal)
            sentences.append(_progress_sentence(design, table, objective.name))
            blocks += _progress_blocks(evidence, design, table, objective.name, objective.goal)
    closing = Sentence(
        "An arm that was chosen because its number was good looks better than it is; compare winners by `confirm`, "
        "on seeds that nothing was chosen by."
    )
    return Section("searches", title, (*sentences, closing), (), tuple(blocks))


def _progress_sentence(design: Design, table: pd.DataFrame, objective: str) -> Sentence:
    settings = design.search
    assert settings is not None
    counts = table["state"].value_counts()
    parts = [f"{counts[state]} {word}" for state, word in _WORDS.items() if state in counts]
    seeds = int(table["n_seeds"].max()) if len(table) else 0
    text = (
        f"{len(table)} arms of its own proposed by {settings.sampler} for {objective}, mean over {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'} each: {', '.join(parts)}."
    )
    best = table.loc[table["best"].notna()]
    if len(best):
        chosen = best.loc[best["value"] == best["best"].iloc[-1], "arm"]
        text += f" Best: {chosen.iloc[0]}, {number(best['best'].iloc[-1], 4)}."
    return Sentence(text, design.name)


_WORDS = {
    "COMPLETE": "complete",
    "PRUNED": "stopped early",
    "FAIL": "failed",
    "RUNNING": "running",
    "WAITING": "unfinished",
}


def _progress_blocks(evidence: Evidence, design: Design, table: pd.DataFrame, objective: str, goal: str) -> list[Block]:
    seeds = evidence.trials.loc[evidence.trials["arm"].isin(table["arm"]), "seed"].unique()
    own = evidence.trials.loc[(evidence.trials["arm"] == BASELINE) & evidence.trials["seed"].isin(seeds)]
    column = f"metric.{objective}"
    baseline = float(pd.to_numeric(own[column], errors="coerce").mean()) if column in own and len(own) else math.nan
    stem = f"{design.name}-{objective.rpartition('/')[2]}"
    axes = plots.search_progress(table, objective=objective, goal=goal, baseline=baseline)
    alt = f"{objective} of each arm that {design.name} proposed, in order, with the best so far."
    values = _proposed_values(evidence, table, design)
    ranked = values.loc[values["state"] == "COMPLETE"].sort_values("value", ascending=goal == "minimize", kind="stable")
    columns = {
        "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
        objective: lambda row: Cell(number(row["value"], 4), href=evidence.anchors[row["arm"]]),
    }
    for path in design.over:
        columns[evidence.names.get(path, path)] = _value_column(path)
    note = f"The best {min(MOST_SHOWN, len(ranked))} of {len(table)}; the csv holds all, in order."
    what = "share of the effective token weight" if design.search is not None and design.search.simplex else "value"
    return [
        Picture(f"progress-{stem}", f"{design.name}: {objective} over proposals", axes, alt),
        make_table(
            stem,
            f"Best arms of {design.name}, with the {what} of each factor",
            ranked.head(MOST_SHOWN),
            columns,
            note=note,
            fold=True,
            source=values,
        ),
    ]


def _proposed_values(evidence: Evidence, table: pd.DataFrame, design: Design) -> pd.DataFrame:
    """The progress with what was proposed: values of the factors, or their shares of a simplex."""
    first = evidence.trials.drop_duplicates("arm").set_index("arm")
    kind = "share" if design.search is not None and design.search.simplex else "config"
    found = {path: first[f"{kind}.{path}"] for path in design.over if f"{kind}.{path}" in first}
    return table.assign(**{path: values.reindex(table["arm"]).to_numpy() for path, values in found.items()})


def _value_column(path: str) -> Callable[[Row], Cell]:
    return lambda row: Cell(_shown(row.get(path)))


def _shown(value: object) -> str:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return "" if value is None else str(value)
    return "" if math.isnan(float(value)) else f"{float(value):.4g}"


def confirmation(evidence: Evidence) -> Section:
    """The winners of each search on fresh seeds, and what is left of what the search saw in them."""
    title = "Winners on fresh seeds"
    sentences: list[Sentence] = []
    blocks: list[Block] = []
    chosen = [design for design in evidence.spec.designs if design.search is not None]
    for index, design in enumerate(chosen, 1):
        settings = design.search
        if settings is None or settings.confirm is None or not evidence.has_primary:
            continue
        primary, objective = evidence.primary, settings.objectives[0]
        table = shrinkage(
            evidence.trials,
            number=index,
            objective=objective.name,
            objective_goal=objective.goal,
            metric=primary.name,
            goal=primary.goal,
            sesoi=primary.sesoi,
            alpha=evidence.alpha,
        )
        if table.empty:
            continue
        sentences += _shrinkage_sentences(evidence, design, table)
        axes = plots.shrinkage(
            table, metric=primary.name, goal=primary.goal, sesoi=primary.sesoi, noise=evidence.noise[0]
        )
        alt = f"Winners of {design.name}: difference to the baseline in the search, and on fresh seeds."
        blocks.append(Picture(f"shrinkage-{index}", f"What is left of the winners of {design.name}", axes, alt))
        blocks.append(_shrinkage_table(evidence, index, table))
    if not blocks:
        return Section("confirmation", title, absent="no winner of a search was run on fresh seeds (`confirm`)")
    return Section("confirmation", title, tuple(sentences), (), tuple(blocks))


def _shrinkage_sentences(evidence: Evidence, design: Design, table: pd.DataFrame) -> list[Sentence]:
    progress = search_progress(evidence.trials, search=design.name, objective="", goal="minimize")
    n = int((progress["state"] == "COMPLETE").sum())
    first = table.iloc[0]
    text = (
        f"the best of {n} looked {number(first['found'], 3)} from the baseline over "
        f"{_seeds(first['n_found'], 'search ')}; "
        f"on {first['n_pairs']} fresh seeds, read on the report split, it is {number(first['confirmed'], 3)} "
        f"{interval(first['low'], first['high'])}"
    )
    if math.isfinite(first["kept"]):
        text += f": {percent(max(first['kept'], 0.0))} of it is left"
    luck = (
        f"Of {n} arms that are all the same, the best by one seed each would look {expected_best(n):.1f} SDs of a "
        "trial better than it is."
    )
    return [Sentence(f"{text}.", design.name), Sentence(luck)] if n > 1 else [Sentence(f"{text}.", design.name)]


def _seeds(count: int, kind: str = "") -> str:
    return f"{count} {kind}{'seed' if count == 1 else 'seeds'}"


def _shrinkage_table(evidence: Evidence, index: int, table: pd.DataFrame) -> Table:
    def verdict(row: Row) -> Cell:
        name = row["verdict"] if isinstance(row["verdict"], str) else "none"
        return Cell(name, mark=name)

    return make_table(
        f"confirm-{index}",
        "Winners against the baseline on the same fresh seeds: a family of tests of their own",
        table,
        {
            "winner": lambda row: Cell(row["arm"], href=evidence.anchors.get(row["arm"], "")),
            "verdict": verdict,
            "in the search": lambda row: Cell(number(row["found"], 3), _seeds(row["n_found"])),
            "confirmed": lambda row: Cell(number(row["confirmed"], 3), f"{row['n_pairs']} pairs"),
            "simultaneous interval": lambda row: Cell(interval(row["low"], row["high"])),
            "p adjusted": lambda row: Cell(p_value(row["p_adjusted"])),
            "left": lambda row: Cell(percent(row["kept"]) if math.isfinite(row["kept"]) else ""),
        },
        note="In the search: the objective on the selection split, over the seeds that chose. Confirmed: the primary "
        "metric on the report split, over seeds that nothing was chosen by.",
    )


def nuisance(evidence: Evidence) -> Section:
    """What each arm's nuisance factors were tuned to."""
    title = "Tuned nuisance factors"
    design = evidence.spec.nuisance
    if design is None or design.search is None or not len(evidence.trials):
        return Section("nuisance", title, absent="no factor is tuned anew for each arm (`nuisance`)")
    arms = [arm for arm, role in evidence.roles.items() if role in ("baseline", "comparison", "twin")]
    first = evidence.trials.drop_duplicates("arm").set_index("arm")
    tried = evidence.trials.loc[evidence.trials["arm"].astype(str).str.startswith("tune/")]
    of_arm = tried["arm"].astype(str).str.removeprefix("tune/").str.replace(r"/\d+$", "", regex=True)
    rows = [
        {"arm": arm, "settings": int(tried.loc[of_arm == arm, "arm"].nunique())}
        | {path: first.loc[arm].get(f"config.{path}") for path in design.over}
        for arm in arms
    ]
    columns = {
        "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
        "settings tried": lambda row: Cell(str(row["settings"])),
    }
    for path in design.over:
        columns[evidence.names.get(path, path)] = _value_column(path)
    settings = design.search
    text = (
        f"{', '.join(evidence.names.get(path, path) for path in design.over)}: {settings.trials} settings an arm, the "
        f"same budget for each, chosen by {settings.objectives[0].name} on {settings.seeds or 1} tuning "
        f"{'seed' if (settings.seeds or 1) == 1 else 'seeds'} that nothing else is read on."
    )
    table = make_table("nuisance", "What each arm is compared with", pd.DataFrame(rows), columns)
    return Section("nuisance", title, (Sentence(text),), (), (table,))


def new_data(evidence: Evidence) -> Section:
    """Effects over seeds that draw data, split or reference anew: what the next one would show."""
    title = "Effects on new data"
    varied = [part for part in evidence.spec.seeds.vary if part != "training"]
    if not varied or not evidence.has_primary:
        return Section("new-data", title, absent="each seed has the same data, split and reference (`seeds.vary`)")
    table = random_effects(evidence.trials, metric=evidence.primary.name, alpha=evidence.spec.analysis.alpha)
    table = table.loc[table["n"] >= 2]
    if table.empty:
        return Section("new-data", title, absent="fewer than two seeds have finished")
    what = " and ".join(varied)
    sentence = Sentence(
        f"Each seed draws {what} anew, the same for all arms. The mean effect is over such draws; the wider interval "
        f"is for the effect on one new draw of {what}. One arm at a time, not adjusted for their number."
    )
    axes = plots.random_effects(
        table, metric=evidence.primary.name, sesoi=evidence.primary.sesoi, noise=evidence.noise[0]
    )
    alt = f"Mean effect of each arm on {evidence.primary.name} over draws of {what}, and the interval for a new draw."
    shown = make_table(
        "random_effects",
        f"Random effects over draws of {what}",
        table,
        {
            "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
            "mean effect": lambda row: Cell(number(row["mean"], 3), interval(row["low"], row["high"])),
            "on a new draw": lambda row: Cell(interval(row["new_low"], row["new_high"])),
            "SD of the effect": lambda row: Cell(number(row["sd"], 3)),
            "of it between draws": lambda row: Cell(number(row["sd_between"], 3)),
            "same sign": lambda row: Cell(percent(row["same_sign"])),
            "draws": lambda row: Cell(str(row["n"])),
        },
        note="Between draws: SD of the effect less what A/A arms show that two trainings differ by on one draw.",
    )
    picture = Picture("random-effects", f"Effects over draws of {what}", axes, alt)
    return Section("new-data", title, (sentence,), (), (picture, shown))
