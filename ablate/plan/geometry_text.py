"""The geometry of a study for a terminal, and what a reader of its plan has to know of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ablate.plan.geometry import SAME, Point, StudyGeometry

MOST_PAIRS = 20
"""Pairs that a terminal shows; `--json` has them all."""


def no_geometry(workload: str) -> str:
    """Why a workload has no term geometry."""
    return (
        f"{workload} has no term geometry: its weight matrices cannot be known before training; allowed: a workload "
        "that trains with the loss stack over a reference table, such as synthetic_sequences"
    )


def geometry_text(geometry: StudyGeometry, study: str) -> list[RenderableType]:
    """The geometry of a study for a terminal."""
    gram = geometry.gram
    head = Text(study, style="bold").append(
        f"\n{len(gram.terms)} terms over {gram.tokens} tokens of {gram.examples} training examples, alpha, epsilons "
        "and mode of the baseline",
        style="",
    )
    parts: list[RenderableType] = [head, _cosines(geometry)]
    parts += [Text(line) for line in (_directions(geometry.points[0]), *_groups(geometry))]
    if len(geometry.points) > 1:
        parts.append(_range(geometry))
    parts.append(_arms(geometry))
    parts.append(Text(DISTANCE, style="dim"))
    parts += [Text(f"warning: {warning}", style="yellow") for warning in geometry_warnings(geometry)]
    return parts


DISTANCE = (
    "distance: of an arm's token weights from the baseline's, each of mean 1, root mean square; tokens: how many "
    "training tokens count, (sum W)^2 / sum W^2"
)


def _cosines(geometry: StudyGeometry) -> Table:
    """Cosines of the terms and the variance inflation of each."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("cosine", overflow="fold")
    terms = geometry.points[0].terms
    for number in range(1, len(terms.names) + 1):
        table.add_column(str(number), justify="right")
    table.add_column("inflation", justify="right")
    for index, name in enumerate(geometry.gram.weight_fields):
        cosines = [_number(value, ".2f") for value in terms.cosines[index]]
        table.add_row(str(index + 1), Text(name), *cosines, _number(terms.variance_inflation[index], ".3g"))
    return table


def _directions(point: Point) -> str:
    values = " ".join(f"{value:.2f}" for value in point.terms.singular_values)
    return f"singular values {values}; effective rank {point.terms.effective_rank:.2f} of {len(point.terms.names)}"


def _groups(geometry: StudyGeometry) -> Iterator[str]:
    terms, fields = geometry.points[0].terms, geometry.gram.weight_fields
    for group in terms.groups:
        if len(group) > 1:
            names = ", ".join(fields[index] for index in group)
            yield f"the data cannot tell apart (every cosine at least {geometry.threshold:g}): {names}"
    for index, row in enumerate(terms.cosines):
        if math.isnan(row[index]):
            yield f"{fields[index]} has a weight matrix of 0 everywhere: it trains nothing"


def group_numbers(groups: Sequence[Sequence[int]]) -> str:
    """Groups by the numbers of their terms, from 1."""
    return " ".join("{" + " ".join(str(index + 1) for index in group) + "}" for group in groups)


def _range(geometry: StudyGeometry) -> Table:
    """How the directions change over the studied range of the settings."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("setting", "effective rank", "singular values", "groups"):
        table.add_column(name, overflow="fold")
    for point in geometry.points:
        values = " ".join(f"{value:.2f}" for value in point.terms.singular_values)
        table.add_row(
            Text(point.change or "baseline"),
            f"{point.terms.effective_rank:.2f}",
            values,
            group_numbers(point.terms.groups),
        )
    return table


def _arms(geometry: StudyGeometry) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("arm", "scale", "β_eff", "tokens", "distance"):
        table.add_column(name, overflow="fold", justify="left" if name == "arm" else "right")
    for label, found in geometry.arms.items():
        cells = ["", "", "", ""]
        if found is not None:
            cells = [
                _number(found.scale, ".4g"),
                _number(found.beta_eff, ".4g"),
                _number(found.effective_token_count, ".0f"),
                distance_text(found.distance),
            ]
        table.add_row(Text(label), *cells)
    return table


def distance_text(distance: float) -> str:
    """A distance as a table shows it."""
    return "0" if distance == 0 else _number(distance, ".3g")


def geometry_warnings(geometry: StudyGeometry) -> list[str]:
    """What a researcher should know of the arms before the first trial."""
    found = [pair.sentence() for pair in geometry.pairs[:MOST_PAIRS]]
    if len(geometry.pairs) > MOST_PAIRS:
        found.append(f"{len(geometry.pairs) - MOST_PAIRS} more pairs of arms are one training: `--json` has them all")
    if geometry.together:
        groups = ", ".join(f"[{', '.join(paths)}]" for paths in geometry.together)
        found.append(
            f"the data cannot tell these apart (cosines at least {geometry.threshold:g}): left out one at a time each "
            f"looks droppable, because the others stay; move them as one: `together: [{groups}]`"
        )
    for reason, count in geometry.unmeasured.items():
        found.append(f"{count} {'arm has' if count == 1 else 'arms have'} no coordinates: {reason}")
    return found


def resolution(geometry: StudyGeometry) -> str:
    """The arms that the data resolves least, beside the effect that the test can detect."""
    moved = {
        label: found.distance
        for label, found in geometry.arms.items()
        if found is not None and found.distance > SAME and math.isfinite(found.distance)
    }
    if not moved:
        return "distance: no arm has other token weights than the baseline"
    nearest, farthest = min(moved, key=moved.__getitem__), max(moved, key=moved.__getitem__)
    return (
        f"distance: from {moved[nearest]:.2g} ({nearest}) to {moved[farthest]:.2g} ({farthest}) of the mean token "
        "weight; of arms of one β_eff, the nearer one has the smaller effect to expect and takes more seeds"
    )


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else ("∞" if math.isinf(value) else "–")
