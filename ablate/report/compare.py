"""Several studies side by side: the arms they share, pooled, with how far they disagree."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from ablate.analysis.compare import Comparison, compare
from ablate.analysis.outcomes import metric_names
from ablate.errors import SpecError
from ablate.plots.comparison import studies as plot_studies
from ablate.plots.style import RC
from ablate.report.blocks import Cell, Picture, Row, Section, Sentence, Table, make_table
from ablate.report.build import write_report
from ablate.report.evidence import Study
from ablate.report.numbers import interval, number, p_value
from ablate.report.wording import percent

#: Below this p value of Q the studies are said to disagree.
HETEROGENEOUS = 0.1


def compare_studies(studies: Sequence[Study]) -> Comparison:
    """The tables behind `ablate compare`, on the first study's primary metric.

    Raises: SpecError if two studies have one name, a study lacks the metric, or has it with another goal.
    """
    frames: dict[str, pd.DataFrame] = {}
    first = studies[0].spec.metrics.primary
    for study in studies:
        name, own = study.spec.study, study.spec.metrics.primary
        if name in frames:
            raise SpecError(f"compare: {name} is named twice; studies are told apart by name")
        trials = study.trials()
        known = metric_names(trials)
        if first.name not in known:
            near = difflib.get_close_matches(first.name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SpecError(f"compare: {name} has no {first.name}, the primary metric of {studies[0].spec.study}{hint}")
        if own.name == first.name and own.goal != first.goal:
            raise SpecError(f"compare: {name} would {own.goal} {first.name}, {studies[0].spec.study} {first.goal} it")
        frames[name] = trials
    return compare(frames, metric=first.name, alpha=studies[0].spec.analysis.alpha)


def compare_text(studies: Sequence[Study]) -> str:
    """What `ablate compare` prints: a line an arm, a column a study, the pooled difference and heterogeneity."""
    found = compare_studies(studies)
    metric = studies[0].spec.metrics.primary
    names = [study.spec.study for study in studies]
    by_study = {(row["arm"], row["study"]): row for row in found.by_study.to_dict("records")}
    pooled = {row["arm"]: row for row in found.pooled.to_dict("records")}
    lines = [["arm", *names, "pooled", "heterogeneity"]]
    for arm in dict.fromkeys(found.by_study["arm"]):
        cells = [_difference(by_study.get((arm, name))) for name in names]
        row = pooled.get(arm)
        lines.append([arm, *cells, _difference(row), _heterogeneity(row)])
    heading = f"{metric.name}, arm minus baseline over common seeds ({metric.goal}); 95 % t intervals"
    return "\n".join([heading, "", *_aligned(lines), "", *(str(one) for one in _sentences(found, names))])


def build_comparison(studies: Sequence[Study], out: Path) -> Path:
    """Write the comparison of several studies as a report of its own; returns its first page."""
    found = compare_studies(studies)
    names = [study.spec.study for study in studies]
    metric = studies[0].spec.metrics.primary
    with mpl.rc_context(RC):
        axes = plot_studies(found.by_study, found.pooled, metric=metric.name, sesoi=metric.sesoi)
        alt = f"Differences of {metric.name} to the baseline in {len(names)} studies, by arm, with the pooled one."
        picture = Picture("studies", f"{metric.name} in each study", axes, alt)
        section = Section(
            "studies",
            f"{metric.name} over {len(names)} studies",
            tuple(_sentences(found, names)),
            (),
            (picture, _pooled_table(found), Table("by_study", "By study", found.by_study), _by_study_table(found)),
        )
        heading = f"{len(names)} studies: {', '.join(names)}"
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return write_report([section], out, ("html", "markdown", "latex"), title="compare", question=heading, note=now)


def _difference(row: Row | None) -> str:
    if row is None or pd.isna(row["difference"]):
        return "–"
    return f"{number(row['difference'], 3)} {interval(row['low'], row['high'])}"


def _heterogeneity(row: Row | None) -> str:
    return "–" if row is None else f"I² {percent(row['i_squared'])}, p {p_value(row['p_heterogeneity'])}"


def _aligned(lines: list[list[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _sentences(found: Comparison, names: list[str]) -> list[Sentence]:
    if found.pooled.empty:
        return [Sentence(f"No arm has finished pairs in two of {', '.join(names)}: nothing to pool.")]
    apart = [str(arm) for arm in found.pooled.loc[found.pooled["p_heterogeneity"] < HETEROGENEOUS, "arm"]]
    if apart:
        text = f"The studies disagree on {', '.join(apart)} (p of Q below {HETEROGENEOUS:g}): read each study's own."
    else:
        text = f"No arm's difference varies over the studies beyond its error (p of Q {HETEROGENEOUS:g} or more)."
    return [
        Sentence(text),
        Sentence(
            "Pooled: the mean in these studies, weighted by precision. For studies like these the random-effects "
            f"interval is the honest one, and with {len(names)} studies it is wide."
        ),
    ]


def _pooled_table(found: Comparison) -> Table:
    return make_table(
        "pooled",
        "Pooled over studies",
        found.pooled,
        {
            "arm": lambda row: Cell(str(row["arm"])),
            "studies": lambda row: Cell(str(row["n_studies"])),
            "in these studies": lambda row: Cell(number(row["difference"], 3), interval(row["low"], row["high"])),
            "in studies like these": lambda row: Cell(
                number(row["random_difference"], 3), interval(row["random_low"], row["random_high"])
            ),
            "I²": lambda row: Cell(percent(row["i_squared"])),
            "p of Q": lambda row: Cell(p_value(row["p_heterogeneity"])),
            "τ": lambda row: Cell(number(row["tau"], 2)),
        },
        note="Left: inverse-variance weights. Right: random effects (Paule-Mandel, Hartung-Knapp).",
    )


def _by_study_table(found: Comparison) -> Table:
    return make_table(
        "",
        "Each study",
        found.by_study,
        {
            "arm": lambda row: Cell(str(row["arm"])),
            "study": lambda row: Cell(str(row["study"])),
            "difference": lambda row: Cell(number(row["difference"], 3), interval(row["low"], row["high"])),
            "pairs": lambda row: Cell(str(row["n_pairs"])),
        },
        fold=True,
    )
