"""Sections as HTML, Markdown and LaTeX. Nothing is concluded here."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from ablate.report.blocks import Cell, Picture, Prose, Section, Sentence, Table

_MIME = {".svg": "image/svg+xml", ".png": "image/png"}

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "±": r"$\pm$", "∞": r"$\infty$",
    "Δ": r"$\Delta$", "×": r"$\times$", "β": r"$\beta$", "|": r"\textbar{}", "…": r"\ldots{}", "–": "--",
    "<": "$<$", ">": "$>$", "τ": r"$\tau$", "²": "$^2$", "μ": r"$\mu$", "λ": r"$\lambda$",
}  # fmt: skip


@dataclass(frozen=True)
class Head:
    """What stands above the sections: a title, the question asked, and a line on the state of things."""

    title: str
    question: str
    note: str


def html_page(head: Head, sections: Sequence[Section], pictures: Mapping[str, Path]) -> str:
    """The whole report as one page that needs no other file."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ablate.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = _breakable
    environment.filters["soft"] = _soft
    environment.filters["caption"] = _caption
    environment.filters["pixels"] = _pixels
    environment.tests["picture"] = lambda block: isinstance(block, Picture)
    environment.tests["prose"] = lambda block: isinstance(block, Prose)
    return environment.get_template("index.html.j2").render(
        head=head,
        sections=sections,
        images={name: _data_uri(path) for name, path in pictures.items()},
    )


def _breakable(text: str) -> Markup:
    """Text that may break after `_`, `/` and `,`, and nowhere within a part between them."""
    parts = re.findall(r"[^_/,]*[_/,]?", text)
    return Markup("<wbr>").join(Markup('<span class="part">{}</span>').format(part) for part in parts if part)


def _soft(text: str) -> Markup:
    """Text that may also break after `_` and `/`."""
    return Markup(re.sub(r"([_/])", r"\1<wbr>", str(escape(text))))  # noqa: S704 - escaped, then only <wbr> added


def _caption(picture: Picture) -> str:
    """Title and note, each a sentence."""
    return " ".join(f"{text.rstrip('.')}." for text in (picture.title, picture.note) if text)


def _pixels(picture: Picture) -> int:
    """Width at which the text of a figure has the size of the page's: a small figure is not blown up."""
    figure = picture.axes.get_figure(root=True)
    return round(115 * figure.get_figwidth()) if figure is not None else 800


def _data_uri(path: Path) -> str:
    return f"data:{_MIME[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def markdown_page(head: Head, sections: Sequence[Section]) -> str:
    """The report as Markdown, figures by link."""
    parts = [f"# {_markdown(head.title)}", ""]
    if head.question:
        parts += [f"*{_markdown(head.question)}*", ""]
    parts += [_markdown(head.note), ""]
    for section in sections:
        parts += [f"## {_markdown(section.title)}", ""]
        parts += [f"> **{_markdown(remark)}**\n" for remark in section.remarks]
        parts += [f"- {_markdown_sentence(sentence)}" for sentence in section.sentences]
        parts.append("")
        for block in section.blocks:
            parts += _markdown_block(block)
    return "\n".join(parts).rstrip() + "\n"


def _markdown_block(block: Table | Picture | Prose) -> list[str]:
    if isinstance(block, Picture):
        return [f"![{_markdown(block.alt)}](figures/{block.name}.svg)", "", _markdown(_caption(block)), ""]
    if isinstance(block, Prose):
        return [_markdown(block.text), ""]
    if not block.rows:
        return []
    lines = [f"**{_markdown(block.title)}**", ""]
    lines.append("| " + " | ".join(_markdown(name) for name in block.head) + " |")
    lines.append("|" + " --- |" * len(block.head))
    lines += ["| " + " | ".join(_markdown_cell(cell) for cell in row) + " |" for row in block.rows]
    return [*lines, "", *([_markdown(block.note), ""] if block.note else [])]


def _markdown_sentence(sentence: Sentence) -> str:
    if sentence.lead:
        return f"**{_markdown(sentence.lead)}**: {_markdown(sentence.text)}"
    return _markdown(sentence.text)


def _markdown_cell(cell: Cell) -> str:
    text = _markdown(cell.text)
    if cell.href and not cell.href.startswith("#"):
        text = f"[{text}]({cell.href})"
    return f"{text} ({_markdown(cell.sub)})" if cell.sub else text


def _markdown(text: str) -> str:
    """Text in which nothing is read as Markdown or HTML."""
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"&#{ord(character)};" if character in "<>|" else f"\\{character}")
    return " ".join(text.split())


def latex_table(table: Table) -> str:
    """A `tabular` with booktabs rules, a row a line, ready to be input."""
    lines = [f"% {' '.join(table.title.split())}; needs \\usepackage{{booktabs}}"]
    lines.append(rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}")
    lines += [r"\toprule", " & ".join(_latex(name) for name in table.head) + r" \\", r"\midrule"]
    rows = [" & ".join(_latex_cell(cell) for cell in row) for row in table.rows]
    # A row that begins with a bracket would be read as an argument of the line end before it.
    lines += [("{}" if row.startswith("[") else "") + row + r" \\" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def latex_prose(prose: Prose) -> str:
    """A paragraph ready to be input."""
    return _latex(prose.text) + "\n"


def _latex_cell(cell: Cell) -> str:
    return f"{_latex(cell.text)} ({_latex(cell.sub)})" if cell.sub else _latex(cell.text)


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
