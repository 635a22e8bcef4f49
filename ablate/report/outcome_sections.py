"""What was measured: arms, curves, pairs, diagnostics, rate and distortion, ranks, and every trial."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd

from ablate.analysis.learning import arm_curves, difference_curves
from ablate.analysis.outcomes import outcomes
from ablate.analysis.resampling import pareto, rank_uncertainty
from ablate.analysis.variance import variance_components
from ablate.plots import curves as curve_plots
from ablate.plots import diagnostics as diagnostic_plots
from ablate.plots import overview, plane, slopes
from ablate.report.blocks import Cell, Picture, Row, Section, Sentence, Table, make_table
from ablate.report.evidence import BASELINE, Evidence
from ablate.report.numbers import interval, number, with_half
from ablate.report.wording import percent

#: Panels that a figure with a panel an arm has room for.
MOST_PANELS = 24
#: Rows that a figure with a row an arm has room for.
MOST_ROWS = 40

REFERENCE, BAYES = "eval/zfree_nll_per_token", "eval/zfree_bayes_nll_per_token"

_PARTS = {"n": "n", "mean": "mean", "low": "low", "high": "high"}
_PAIR_PARTS = {"n_pairs": "n_pairs", "difference": "difference", "low": "difference_low", "high": "difference_high"}


def arms(evidence: Evidence) -> Section:
    """How each arm's trials ended and its mean of each declared metric, with the paired difference below it."""
    states = evidence.states
    if not len(states):
        return Section("arms", "Arms", absent="the study has no trial")
    compared = states.loc[~states["role"].isin(["search", "tuning"])]
    columns = {
        "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
        "complete": lambda row: _complete_cell(evidence, row),
    }
    for metric in evidence.compared:
        columns[metric.name] = _metric_column(evidence, metric.name)
    note = (
        "Mean over seeds ± half of the 95 % t interval; below it the mean paired difference to the baseline on "
        "common seeds, likewise. These intervals are one at a time; the verdicts use simultaneous ones."
    )
    source = states.merge(_wide(evidence), on="arm", how="left")
    table = make_table("arms", "Mean of each declared metric, by arm", compared, columns, note=note, source=source)
    return Section("arms", "Arms", (), (), (table,))


def _complete_cell(evidence: Evidence, row: Row) -> Cell:
    lost = [f"{row['diverged']} diverged"] if row["diverged"] else []
    accidents = row["FAIL"] - row["diverged"]
    lost += [f"{accidents} failed"] if accidents else []
    return Cell(f"{row['COMPLETE']} of {row['n']}", ", ".join(lost), href=evidence.anchors[row["arm"]])


def _metric_column(evidence: Evidence, name: str) -> Callable[[Row], Cell]:
    """The cells of one metric, by arm."""
    mean, paired = (
        {row["arm"]: row for row in table.loc[table["metric"] == name].to_dict("records")}
        for table in (evidence.means, evidence.effects)
    )
    return lambda row: _metric_cell(mean[row["arm"]], paired.get(row["arm"]), evidence.anchors[row["arm"]])


def _metric_cell(mean: Row, paired: Row | None, href: str) -> Cell:
    text = with_half(mean["mean"], mean["high"] - mean["mean"])
    text += f" ({mean['n_infinite']} infinite)" if mean["n_infinite"] else ""
    sub = ""
    if paired is not None and paired["n_pairs"]:
        sub = "Δ " + with_half(paired["difference"], paired["high"] - paired["difference"], signed=True)
    return Cell(text, sub, href=href)


def _wide(evidence: Evidence) -> pd.DataFrame:
    """Columns `<metric>.<part>` for each declared metric: the mean and the paired difference, an arm a row."""
    table = pd.DataFrame({"arm": list(evidence.roles)})
    for metric in evidence.compared:
        for source, parts in ((evidence.means, _PARTS), (evidence.effects, _PAIR_PARTS)):
            own = source.loc[source["metric"] == metric.name, ["arm", *parts]]
            named = own.rename(columns={old: f"{metric.name}.{new}" for old, new in parts.items()})
            table = table.merge(named, on="arm", how="left")
    return table


def curves(evidence: Evidence) -> Section:
    """The primary metric over steps by arm, and the paired difference over steps."""
    title = "Learning curves"
    name = evidence.primary.name
    arms, note = evidence.pictured(MOST_PANELS, "comparison", "twin", "aa")
    chosen = evidence.trials.loc[evidence.trials["arm"].isin([BASELINE, *arms])] if arms else evidence.trials
    table = arm_curves(chosen, evidence.curves, [name])
    if table.empty:
        return Section("curves", title, absent=f"no trial has reported {name} yet")
    reference = evidence.baseline_mean(REFERENCE)
    at = evidence.primary.at
    axes = curve_plots.learning_curves(
        table,
        metric=name,
        reference=None if math.isnan(reference) else reference,
        at_step=int(at.partition(":")[2]) if at.startswith("step:") else None,
        noise=evidence.noise[0],
    )
    if math.isfinite(evidence.noise[0]):
        note = f"{note} Hatched: A/A noise floor around the baseline, where arms are compared.".strip()
    blocks: list[Picture | Table] = [
        Picture("learning-curves", f"{name} over steps", axes[0], f"Mean and 95 % band of {name} by arm.", note),
        Table("learning_curves", "Learning curves", table),
    ]
    gaps = difference_curves(chosen, evidence.curves, name)
    if len(gaps):
        axes = slopes.difference_curves(gaps, metric=name, sesoi=evidence.primary.sesoi, noise=evidence.noise[0])
        alt = f"Mean paired difference of {name} to the baseline over steps, by arm."
        shades = "Grey: too small to matter. Hatched: A/A noise floor." if math.isfinite(evidence.noise[0]) else ""
        blocks.append(Picture("difference-curves", f"Paired difference over steps. {shades}".strip(), axes[0], alt))
        blocks.append(Table("difference_curves", "Paired differences over steps", gaps))
    return Section("curves", title, _what_was_learnt(evidence, table), (), tuple(blocks))


def _what_was_learnt(evidence: Evidence, table: pd.DataFrame) -> tuple[Sentence, ...]:
    """Where the baseline started, where it ended, and what the predictors without z reach."""
    own = table.loc[(table["arm"] == BASELINE) & table["mean"].notna()]
    if own.empty:
        return ()
    first, last = own.iloc[0], own.iloc[-1]
    text = (
        f"The baseline's {evidence.primary.name} went from {number(first['mean'])} at step {first['step']} to "
        f"{number(last['mean'])} at step {last['step']}"
    )
    beside = [(REFERENCE, "the z-free reference has"), (BAYES, "the best predictor without z")]
    known = [(f"{words} {number(evidence.baseline_mean(name))}") for name, words in beside if name in evidence.measured]
    text += f" ({', '.join(known)} nats per token)" if known else ""
    extra = [(n, w) for n, w in (("eval/rate_per_token", "rate"), ("eval/active_units", "active units"))]
    found = [f"{words} {number(evidence.baseline_mean(name), 3)}" for name, words in extra if name in evidence.measured]
    return (Sentence(text + (f"; {', '.join(found)}" if found else "") + "."),)


def pairs(evidence: Evidence) -> Section:
    """Each seed's baseline joined to its arm."""
    title = "Seed by seed"
    primary = evidence.primary
    arms, note = evidence.pictured(MOST_PANELS, "comparison", "twin", "aa")
    if not evidence.has_primary or not arms:
        return Section("pairs", title, absent="no pair of seeds to show")
    value = outcomes(evidence.trials, primary.name).value
    table = pd.concat(
        [
            pd.DataFrame({"arm": arm, "seed": value.index, "baseline": value[BASELINE], "value": value[arm]})
            for arm in arms
            if BASELINE in value
        ]
        or [pd.DataFrame(columns=["arm", "seed", "baseline", "value"])]
    ).dropna()
    if table.empty:
        return Section("pairs", title, absent="no arm shares a finished seed with the baseline")
    axes = slopes.paired_slopes(table, metric=primary.name, goal=primary.goal, noise=evidence.noise[0])
    alt = f"Each seed's {primary.name} in the baseline and in the arm, joined, a panel an arm."
    picture = Picture("paired-seeds", "Each seed, baseline to arm", axes[0], alt, note)
    return Section("pairs", title, (), (), (picture, Table("pairs", "Pairs", table.reset_index(drop=True))))


def diagnostics(evidence: Evidence) -> Section:
    """The diagnostics by arm, over steps, and against the outcome."""
    title = "Diagnostics of the token weighting"
    names = evidence.diagnostics
    if not names:
        return Section("diagnostics", title, absent="the workload logged no diagnostics of a token weighting")
    kept = evidence.means.loc[evidence.means["metric"].isin(names)]
    arms, note = evidence.pictured(MOST_ROWS, "baseline", "comparison", "twin", "aa")
    axes = diagnostic_plots.by_arm(kept.loc[kept["arm"].isin(arms)], metrics=names, baseline=BASELINE)
    alt = f"Mean and t interval of {len(names)} diagnostics by arm."
    blocks: list[Picture | Table] = [
        Picture("diagnostics-by-arm", "Diagnostics by arm; dashed: the baseline", axes[0], alt, note),
        Table("diagnostics", "Diagnostics by arm", kept),
    ]
    sentences: tuple[Sentence, ...] = ()
    steps = arm_curves(evidence.trials.loc[evidence.trials["arm"].isin(arms)], evidence.curves, names)
    moving = [name for name in names if _moves(steps.loc[steps["metric"] == name])]
    if moving:
        axes = diagnostic_plots.over_steps(steps, metrics=moving, baseline=BASELINE)
        alt = f"{len(moving)} diagnostics over steps; the baseline in black."
        blocks.append(Picture("diagnostics-over-steps", "Diagnostics that change over steps", axes[0], alt))
    still = [name for name in names if name not in moving and name in set(steps["metric"])]
    if still:
        sentences = (Sentence(f"Constant over training, as they depend on the reference alone: {', '.join(still)}."),)
    varying = [name for name in names if _varies(evidence, name)]
    if evidence.has_primary and varying:
        blocks.append(_against_outcome(evidence, varying))
    return Section("diagnostics", title, sentences, (), tuple(blocks))


def _moves(steps: pd.DataFrame) -> bool:
    """Whether a metric changes over steps within an arm, beyond rounding."""
    if steps.empty:
        return False
    within = steps.groupby("arm")["mean"].agg(["min", "max"])
    size = float(steps["mean"].abs().max())
    return bool((within["max"] - within["min"] > 1e-6 * size).any())


def _varies(evidence: Evidence, name: str) -> bool:
    """Whether a metric differs between complete trials, beyond rounding."""
    values = evidence.trials.loc[evidence.trials["state"] == "COMPLETE", f"metric.{name}"].astype(float)
    return bool(values.max() - values.min() > 1e-6 * values.abs().max())


def _against_outcome(evidence: Evidence, names: list[str]) -> Picture:
    complete = evidence.trials.loc[evidence.trials["state"] == "COMPLETE"]
    table = pd.DataFrame({name: complete[f"metric.{name}"].astype(float) for name in [*names, evidence.primary.name]})
    table["role"] = complete["arm"].map(evidence.roles)
    floor = evidence.noise[0]
    axes = diagnostic_plots.against_outcome(table, metrics=names, outcome=evidence.primary.name, noise=floor)
    alt = f"{len(names)} diagnostics against {evidence.primary.name}, a dot a trial."
    return Picture(
        "diagnostics-against-outcome",
        "Diagnostics that differ between trials, against the outcome; dark: the baseline",
        axes[0],
        alt,
        "Hatched: A/A noise floor around the baseline's mean." if math.isfinite(floor) else "",
    )


def rate_and_distortion(evidence: Evidence) -> Section:
    """The plane of rate and distortion, with arms that only moved along it named."""
    title = "Rate and distortion"
    table = evidence.rate_distortion
    if table.empty or not (table["n"] > 0).any():
        return Section("rate-distortion", title, absent="the workload measured no rate and distortion")
    shifted = [str(arm) for arm in table.loc[table["arm"].isin(evidence.shifted), "arm"]]
    if shifted:
        text = (
            f"{', '.join(shifted)}: rate and distortion moved in opposite directions, each by more than its interval. "
            "Such an arm trades KL for likelihood, or back: the negative ELBO charges that, likelihood alone does not."
        )
        sentence = Sentence(text, "Rate shift", "undecided")
    else:
        sentence = Sentence("No arm moved rate and distortion in opposite directions by more than its intervals.")
    floor = evidence.noise[0] if evidence.primary.name == "eval/neg_elbo_per_token" else math.nan
    axes = plane.rate_distortion(table, baseline=BASELINE, noise=floor)
    note = "Grey lines: equal negative ELBO; dashed: the baseline's, with the A/A noise floor; rings: rate shift."
    picture = Picture(
        "rate-distortion", "Rate-distortion plane", axes, "Arms in the plane of rate and distortion.", note
    )
    shown = make_table(
        "rate_distortion",
        "Rate and distortion of every arm",
        table,
        {
            "arm": lambda row: Cell(row["arm"], row["note"], href=evidence.anchors[row["arm"]]),
            "rate": lambda row: Cell(with_half(row["rate"], row["rate_high"] - row["rate"])),
            "Δ rate": lambda row: _change(row, "rate"),
            "distortion": lambda row: Cell(with_half(row["distortion"], row["distortion_high"] - row["distortion"])),
            "Δ distortion": lambda row: _change(row, "distortion"),
        },
        note="Nats per token; paired differences to the baseline with marginal 95 % t intervals.",
        fold=True,
    )
    return Section("rate-distortion", title, (sentence,), (), (picture, shown))


def _change(row: Row, name: str) -> Cell:
    difference = row[f"{name}_difference"]
    return Cell(with_half(difference, row[f"{name}_difference_high"] - difference, signed=True))


def fronts(evidence: Evidence) -> Section:
    """The Pareto front of the first two metrics with a goal."""
    title = "Pareto front"
    goals = {metric.name: metric.goal for metric in evidence.compared if metric.goal is not None}
    chosen = dict(list(goals.items())[:2])
    if len(chosen) < 2:
        return Section("pareto", title, absent="fewer than two measured metrics have a goal")
    table = pareto(evidence.trials, goals=chosen)
    if table.empty:
        return Section("pareto", title, absent="no two arms share finished seeds")
    x, y = chosen
    floor = evidence.noise[0] if x == evidence.primary.name else math.nan
    axes = plane.pareto(table, x=x, y=y, goals=chosen, baseline=BASELINE, noise=floor)
    on_front = ", ".join(table.loc[table["on_front"], "arm"])
    sentence = Sentence(f"On the front over {table['n'].iloc[0]} common seeds: {on_front}.")
    note = "Shade: share of resampled sets of seeds in which no arm is better on both. Hatched: A/A noise floor."
    picture = Picture("pareto", f"{x} against {y}", axes, f"Arms by {x} and {y}.", note)
    shown = make_table(
        "pareto",
        "Probability of being on the front",
        table.sort_values("p_front", ascending=False, kind="stable"),
        {
            "arm": lambda row: Cell(row["arm"], href=evidence.anchors[row["arm"]]),
            x: lambda row: Cell(number(row[x])),
            y: lambda row: Cell(number(row[y])),
            "on the front": lambda row: Cell("yes" if row["on_front"] else "no"),
            "probability": lambda row: Cell(percent(row["p_front"])),
        },
        fold=True,
    )
    return Section("pareto", title, (sentence,), (), (picture, shown))


def spread(evidence: Evidence) -> Section:
    """Where the spread comes from, and how sure the ranking is."""
    title = "Spread and ranks"
    if not evidence.has_primary:
        return Section("spread", title, absent="the primary metric has no value yet")
    name = evidence.primary.name
    parts = variance_components(evidence.trials, metric=name)
    table = rank_uncertainty(evidence.trials, metric=name, goal=evidence.primary.goal)
    if parts.empty or table.empty:
        return Section("spread", title, absent="two arms with two common seeds are needed")
    share = {row["source"]: row["share"] for row in parts.to_dict("records")}
    sentences: tuple[Sentence, ...] = ()
    if all(math.isfinite(value) for value in share.values()):
        sentences = (
            Sentence(
                f"Of the variance of {name}, {percent(share['arm'])} lies between arms, {percent(share['seed'])} "
                f"between seeds, and {percent(share['arm x seed'])} is left within an arm and seed."
            ),
        )
    components = make_table(
        "variance_components",
        "Variance components",
        parts,
        {
            "source": lambda row: Cell(row["source"]),
            "sd": lambda row: Cell(number(row["sd"], 3), interval(row["low_sd"], row["high_sd"]).replace("+", "")),
            "share": lambda row: Cell("–" if math.isnan(row["share"]) else percent(row["share"])),
            "degrees": lambda row: Cell(str(row["degrees"])),
        },
        note="Two-way random effects over the common seeds; with one trial a cell, arm x seed holds the residual.",
    )
    arms, note = evidence.pictured(MOST_ROWS, "baseline", "comparison", "twin", "search")
    still = _within_noise(evidence)
    axes = overview.ranks(table.loc[table["arm"].isin(arms)], metric=name, within_noise=still)
    note = f"{note} Hatched: within the A/A noise floor of the baseline.".strip() if still else note
    alt = f"Rank of {len(table)} arms with its interval over resampled seeds."
    picture = Picture("ranks", "Ranks with their 95 % interval over resampled seeds", axes, alt, note)
    return Section("spread", title, sentences, (), (components, picture, Table("ranks", "Ranks", table)))


def _within_noise(evidence: Evidence) -> set[str]:
    """Arms whose mean difference to the baseline is no larger than the A/A noise floor."""
    own = evidence.effects.loc[evidence.effects["metric"] == evidence.primary.name]
    return set(own.loc[own["difference"].abs() <= evidence.noise[0], "arm"])


def trials(evidence: Evidence) -> Section:
    """Every trial with its log and MLflow run, an arm a table: where each number comes from."""
    blocks = []
    columns = {
        "trial": lambda row: _trial_cell(evidence, row),
        "seed": lambda row: Cell(str(row["seed"])),
        "state": lambda row: Cell(str(row["state"]), _text(row.get("reason")), mark=str(row["state"])),
        evidence.primary.name: lambda row: Cell(number(_float(row.get(f"metric.{evidence.primary.name}")))),
        "seconds": lambda row: Cell(number(_float(row.get("duration_s")), 3)),
        "MLflow run": lambda row: Cell(_text(row.get("mlflow_run_id"))),
    }
    if not len(evidence.trials):
        return Section("trials", "Trials", (Sentence("The study has no trial."),))
    for arm, own in evidence.trials.groupby("arm", sort=False):
        anchor = evidence.anchors[str(arm)].removeprefix("#")
        blocks.append(make_table("", str(arm), own, columns, fold=True, anchor=anchor, source=pd.DataFrame()))
    text = "Each arm with its trials: identity, end, log and MLflow run. The whole frame is tables/trials.csv."
    return Section("trials", "Trials", (Sentence(text),), (), (*blocks, Table("trials", "All trials", evidence.trials)))


def _trial_cell(evidence: Evidence, row: Row) -> Cell:
    folder = evidence.trial_folder(str(row["trial_id"]))
    return Cell(str(row["trial_id"]), href=f"{folder}/log.txt" if folder else "")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
