"""A study's report: a folder with one page that works offline, the same in Markdown, tables and figures."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate.plots.style import RC
from ablate.report.blocks import Picture, Prose, Section, Table
from ablate.report.evidence import Evidence, Study
from ablate.report.looks import read_changes, record_look, this_look
from ablate.report.render import Head, html_page, latex_prose, latex_table, markdown_page
from ablate.report.sections import make_sections
from ablate.report.wording import progress_sentence

#: Where the page lists every trial.
ALL_TRIALS = "#trials"
#: An SVG above this size (a plot of very many points) goes into the page as a PNG.
LARGEST_INLINE_SVG = 600_000


def build_report(study: Study, out: Path) -> Path:
    """Write the report of a study, in whatever state it is, and return its first page.

    `out` receives `index.html`, `report.md`, `tables/*.csv` (and `*.tex`) and `figures/*.svg|png`, as
    `report.formats` asks; tables and figures of an earlier report in it are replaced. A report that shows outcomes
    is recorded in the run folder's `looks.jsonl`.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    trials = study.trials()
    looks = record_look(study.path, this_look(trials, now))
    evidence = Evidence(
        study.spec, trials, study.curves(), study.path, study.facts, out, now, looks, read_changes(study.path)
    )
    spec = evidence.spec
    with mpl.rc_context(RC):
        sections = [traced(section, evidence.anchors, evidence.tips) for section in make_sections(evidence)]
        note = f"{progress_sentence(evidence.states)} Made {now}."
        return write_report(sections, out, spec.report.formats, title=spec.study, question=spec.question, note=note)


def traced(section: Section, anchors: Mapping[str, str], tips: Mapping[str, str]) -> Section:
    """The section with every cell of its tables leading to the trials behind it: its arm's, else all of them.

    A cell that names an arm gets the arm's tip.
    """
    blocks: list[Table | Picture | Prose] = []
    for block in section.blocks:
        if isinstance(block, Table):
            rows = []
            for row in block.rows:
                href = next((anchors[cell.text] for cell in row if cell.text in anchors), ALL_TRIALS)
                rows.append(
                    tuple(replace(cell, href=cell.href or href, tip=tips.get(cell.text, cell.tip)) for cell in row)
                )
            blocks.append(replace(block, rows=tuple(rows)))
        else:
            blocks.append(block)
    return replace(section, blocks=tuple(blocks))


def write_report(
    sections: Sequence[Section], out: Path, formats: Sequence[str], *, title: str, question: str, note: str
) -> Path:
    """Write sections to a folder in these formats; returns the first page."""
    out.mkdir(parents=True, exist_ok=True)
    _clear(out)
    pictures = _write_figures(sections, out / "figures")
    _write_tables(sections, out / "tables", latex="latex" in formats)
    head = Head(title, question, note)
    pages = {"html": "index.html", "markdown": "report.md"}
    written = []
    for kind, name in pages.items():
        if kind not in formats:
            (out / name).unlink(missing_ok=True)
            continue
        page = html_page(head, sections, pictures) if kind == "html" else markdown_page(head, sections)
        _replace(out / name, page)
        written.append(out / name)
    return written[0] if written else out / "tables"


def _clear(out: Path) -> None:
    """Remove the tables and figures of an earlier report; nothing else."""
    for pattern in ("tables/*.csv", "tables/*.tex", "figures/*.svg", "figures/*.png"):
        for path in out.glob(pattern):
            path.unlink()


def _write_figures(sections: Sequence[Section], folder: Path) -> dict[str, Path]:
    """Every picture as SVG and PNG; returns the file that a page embeds, by the picture's name."""
    folder.mkdir(exist_ok=True)
    chosen = {}
    for picture in (block for section in sections for block in section.blocks if isinstance(block, Picture)):
        figure = _figure(picture.axes)
        svg, png = folder / f"{picture.name}.svg", folder / f"{picture.name}.png"
        figure.savefig(svg, metadata={"Date": None})
        figure.set_layout_engine("none")  # it is laid out; doing it again takes as long as drawing
        figure.savefig(png, dpi=160)
        chosen[picture.name] = svg if svg.stat().st_size <= LARGEST_INLINE_SVG else png
    return chosen


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    if figure is None:
        raise ValueError("a picture's axes belong to no figure")
    return figure


def _write_tables(sections: Sequence[Section], folder: Path, *, latex: bool) -> None:
    folder.mkdir(exist_ok=True)
    for block in (block for section in sections for block in section.blocks):
        if isinstance(block, Table) and block.name:
            block.frame.to_csv(folder / f"{block.name}.csv", index=False)
            if latex and block.rows:
                _replace(folder / f"{block.name}.tex", latex_table(block))
        elif isinstance(block, Prose) and latex:
            _replace(folder / f"{block.name}.tex", latex_prose(block))


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
