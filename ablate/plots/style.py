"""The look that every figure shares: colours that survive colour blindness and a grey print, sizes, labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

#: Okabe and Ito 2008; each verdict also has a marker of its own, so that colour carries nothing alone.
BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442",
)  # fmt: skip
INK, GREY, PALE = "#222222", "#767676", "#D9D9D9"

VERDICT_STYLE: dict[str, tuple[str, str]] = {
    "needed": (VERMILION, "s"),
    "worse": (VERMILION, "s"),
    "harmful": (PURPLE, "D"),
    "better": (BLUE, "D"),
    "droppable": (GREEN, "o"),
    "equivalent": (GREEN, "o"),
    "undecided": (GREY, "^"),
    "": (BLUE, "o"),
}

#: Given to `matplotlib.rc_context` by whoever saves figures; the functions here don't rely on it.
RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.titlelocation": "left",
    "figure.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "ablate",
    "path.simplify": True,
}


def new_axes(width: float = 7.0, height: float = 4.0) -> Axes:
    """One Axes on a Figure of its own, outside pyplot, so that nothing is kept and threads don't meet."""
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def new_panels(
    count: int,
    *,
    columns: int = 3,
    width: float = 7.0,
    row_height: float = 1.8,
    sharex: bool = False,
    sharey: bool = False,
) -> list[Axes]:
    """`count` Axes in a grid of at most `columns`; cells left over are not drawn."""
    columns = max(1, min(columns, count))
    rows = -(-count // columns)
    figure = Figure(figsize=(width, max(row_height * rows, 1.6)), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).ravel()
    for spare in grid[count:]:
        spare.remove()
    return list(grid[:count])


def error_bars(middle: Floats, low: Floats, high: Floats) -> Floats:
    """Lengths [2, n] of error bars below and above; 0 where an end is unknown or infinite."""
    known = np.isfinite(low) & np.isfinite(high) & np.isfinite(middle)
    ends = np.zeros((2, len(middle)))
    ends[:, known] = np.vstack([middle[known] - low[known], high[known] - middle[known]])
    return ends


def wrap(label: str, width: int = 30) -> str:
    """A label over several lines, broken after `_`, `/`, `,`, `=` or a space so that each is at most `width` long."""
    lines, line = [], ""
    for piece in _pieces(label):
        if line and len(line) + len(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece
    return "\n".join([*lines, line.rstrip()])


def _pieces(label: str) -> list[str]:
    pieces, start = [], 0
    for position, character in enumerate(label):
        if character in "_/,= ":
            pieces.append(label[start : position + 1])
            start = position + 1
    return [*pieces, label[start:]]


@dataclass(frozen=True)
class Rows:
    """Wrapped labels down the side of a plot, each row as tall as its label.

    Attributes:
        y: centre of each row, downwards from 0, in inches.
        height: of all rows together, in inches.
    """

    labels: list[str]
    y: list[float]
    height: float

    def put(self, axes: Axes, fontsize: float = 8) -> None:
        """Set them as the ticks of the y axis."""
        axes.set_yticks(self.y, self.labels, fontsize=fontsize)
        axes.set_ylim(-self.height, 0.0)


def label_rows(labels: Sequence[str], *, width: int = 34, line: float = 0.16, pad: float = 0.14) -> Rows:
    """Rows for these labels: `line` inches a line of text and `pad` between rows."""
    wrapped = [wrap(label, width) for label in labels]
    ends = np.cumsum([0.0, *(line * (1 + label.count("\n")) + pad for label in wrapped)])
    return Rows(wrapped, [float(y) for y in -(ends[:-1] + ends[1:]) / 2], float(ends[-1]))


def colours(count: int) -> list[str]:
    """Distinct colours for up to seven series; more repeat and need another mark beside colour."""
    palette = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK]
    return [palette[index % len(palette)] for index in range(count)]


def tidy(axes: Axes) -> Axes:
    """Light frame, ticks that don't crowd."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3, color=GREY)
    return axes


def hatch_floor(axes: Axes, noise: float | None, *, centre: float = 0.0, horizontal: bool = True) -> None:
    """Hatch the A/A noise floor, `noise` to both sides of `centre`; nothing where it is not known.

    Args:
        horizontal: whether the outcome is on y.
    """
    if noise is None or not np.isfinite(noise) or not np.isfinite(centre):
        return
    span = axes.axhspan if horizontal else axes.axvspan
    span(centre - noise, centre + noise, facecolor="none", edgecolor=SKY, hatch="////", lw=0, alpha=0.35, zorder=0)


def difference_rows(
    labels: Sequence[str], *, sesoi: float | None, noise: float | None, axes: Axes | None
) -> tuple[Axes, Rows]:
    """Axes for differences to the baseline, a row a label: 0, the band too small to matter, the A/A noise floor.

    Returns: the Axes, a new one where None is given, and the rows, to be put once all is drawn.
    """
    rows = label_rows(labels)
    axes = new_axes(7.0, 1.5 + rows.height) if axes is None else axes
    if sesoi is not None:
        axes.axvspan(-sesoi, sesoi, color=PALE, alpha=0.55, lw=0, zorder=0)
    hatch_floor(axes, noise, horizontal=False)
    axes.axvline(0, color=INK, lw=0.8, zorder=1)
    return axes, rows
