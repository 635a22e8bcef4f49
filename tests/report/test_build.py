"""A report is made of a study in any state, whole, offline and escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ablate.report.build import build_report
from ablate.report.evidence import Evidence
from ablate.report.looks import this_look
from ablate.report.render import Head, markdown_page
from ablate.report.sections import make_sections
from ablate.spec.models import ReportSettings
from tests.simulated_study import EFFECTS, PRIMARY, FakeStudy, empty_curves, simulate_study

FIGURES = (
    "forest", "forest-twins", "learning-curves", "difference-curves", "diagnostics-by-arm", "paired-seeds",
    "diagnostics-against-outcome", "rate-distortion", "pareto", "ranks", "seed-blocks", "parallel-weights",
)  # fmt: skip


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.targets += [v for k in ("href", "src") if (v := values.get(k))]
        self.ids |= {v for k in ("id",) if (v := values.get(k))}
        self.scripts += tag == "script"


def parse(page: Path) -> _Links:
    links = _Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    failures = {("-raw_weight", 3): "diverged", ("token_aggregation=token_mean", 1): "exception"}
    build_report(simulate_study(failures=failures, path=run, diagnostics=2, steps=5), run / "report")
    return run / "report"


def test_the_page_needs_no_other_file(built: Path) -> None:
    page = built / "index.html"
    outside = [target for target in parse(page).targets if not target.startswith(("#", "data:", "../trials/"))]
    assert outside == []
    assert "@import" not in page.read_text()


def test_every_number_of_every_table_leads_to_trials(built: Path) -> None:
    cells = re.findall(r"<td>(.*?)</td>", (built / "index.html").read_text(encoding="utf-8"))
    assert len(cells) > 200
    assert [cell for cell in cells if not cell.startswith("<a href=")] == []


def test_every_link_within_the_page_leads_somewhere(built: Path) -> None:
    links = parse(built / "index.html")
    assert {target[1:] for target in links.targets if target.startswith("#")} <= links.ids


def test_page_and_markdown_hold_each_arm_and_trial(built: Path) -> None:
    html, markdown = (built / "index.html").read_text(), (built / "report.md").read_text()
    for arm in EFFECTS:
        assert re.sub("<wbr>|</?span[^>]*>", "", html).count(f">{arm}<") >= 1
    assert "../trials/000000000000/log.txt" in html
    assert "../trials/000000000000/log.txt" in markdown
    assert f"{0:032x}" in html


def test_figures_and_tables_lie_beside_the_page(built: Path) -> None:
    for name in FIGURES:
        assert (built / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        assert (built / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(built / "tables" / "contrasts.csv", keep_default_na=False)
    assert table.loc[table["arm"] == "-token_weighted_weight", "verdict"].item() == "harmful"
    assert r"\toprule" in (built / "tables" / "contrasts.tex").read_text()


def test_the_verdict_comes_first_in_plain_words(built: Path) -> None:
    markdown = (built / "report.md").read_text().replace("\\", "")
    assert markdown.index("**Harmful**: removing token_weighted_weight lowers eval/neg_elbo_per_token by") < (
        markdown.index("## Arms")
    )


def unfinished(**spec: Any) -> FakeStudy:
    """A study of which nothing has run: its report is short, and quickly made."""
    return simulate_study(seeds=2, effects=FEW, failures=every("WAITING", 2), diagnostics=0, steps=1, **spec)


def test_a_second_report_replaces_the_first(tmp_path: Path) -> None:
    build_report(unfinished(), tmp_path)
    (tmp_path / "tables" / "old.csv").write_text("")
    (tmp_path / "mine.txt").write_text("")
    build_report(unfinished(), tmp_path)
    assert not (tmp_path / "tables" / "old.csv").exists()
    assert (tmp_path / "mine.txt").exists()


@pytest.mark.parametrize(
    ("formats", "files"), [(("markdown",), {"report.md"}), (("html",), {"index.html"}), (("latex",), set())]
)
def test_formats_are_honoured(tmp_path: Path, formats: tuple[str, ...], files: set[str]) -> None:
    build_report(unfinished(), tmp_path)
    build_report(unfinished(report=ReportSettings.model_validate({"formats": formats})), tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == files
    assert bool(list(tmp_path.glob("tables/*.tex"))) == ("latex" in formats)


HOSTILE = '<script>alert("x")</script>|`*_[a](javascript:b)\\end{tabular}'


def test_names_questions_and_reasons_are_escaped(tmp_path: Path) -> None:
    study = simulate_study(seeds=6, effects={"baseline": 0.0, HOSTILE: 0.1}, question=HOSTILE, diagnostics=0,
                           failures={(HOSTILE, 1): HOSTILE})  # fmt: skip
    study.trials_frame["mlflow_run_id"] = HOSTILE
    page = build_report(study, tmp_path)
    assert parse(page).scripts == 1
    assert "<script>alert" not in page.read_text()
    assert "<script>" not in (tmp_path / "report.md").read_text()
    assert r"\end{tabular}" not in (tmp_path / "tables" / "arms.tex").read_text()[:-20]


FEW = {arm: EFFECTS[arm] for arm in ("baseline", "-raw_weight", "token_aggregation=token_mean", "aa-1")}


def few(failures: dict[tuple[str, int], str] | None = None, seeds: int = 8) -> FakeStudy:
    return simulate_study(seeds=seeds, effects=FEW, failures=failures, diagnostics=1, steps=3)


def every(word: str, seeds: int) -> dict[tuple[str, int], str]:
    return {(arm, seed): word for arm in FEW for seed in range(seeds)}


def _empty() -> FakeStudy:
    study = simulate_study(seeds=1)
    return FakeStudy(study.spec, study.trials_frame.iloc[:0], empty_curves())


def _without_a_metric(study: FakeStudy) -> FakeStudy:
    metrics = [name for name in study.trials_frame.columns if name.startswith("metric.")]
    return FakeStudy(study.spec, study.trials_frame.drop(columns=metrics), empty_curves())


def _with_primary(value: float) -> FakeStudy:
    study = few(seeds=6)
    study.trials_frame[f"metric.{PRIMARY}"] = value
    return study


STATES = {
    "empty": _empty,
    "nothing finished": lambda: few(every("WAITING", 2), 2),
    "nothing measured": lambda: _without_a_metric(few(seeds=2)),
    "one arm": lambda: simulate_study(effects={"baseline": 0.0}, diagnostics=1, steps=3),
    "one seed": lambda: few(seeds=1),
    "missing seeds": lambda: few({("baseline", s): "WAITING" for s in range(4)}),
    "all failed": lambda: few(every("exception", 3), 3),
    "all diverged": lambda: few(every("diverged", 6), 6),
    "baseline failed": lambda: few({("baseline", s): "died" for s in range(8)}),
    "constant metric": lambda: _with_primary(1.5),
    "infinite metric": lambda: _with_primary(np.inf),
    "missing metric": lambda: _with_primary(np.nan),
}


@pytest.mark.parametrize("state", STATES)
def test_a_study_in_any_state_gives_sentences(state: str, tmp_path: Path) -> None:
    page = build_report(STATES[state](), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert page.read_text().count("</section>") == text.count("\n## ")
    assert "nan" not in re.sub(r"!\[.*?\)", "", text)
    for part in text.split("\n## ")[1:]:
        assert part.partition("\n")[2].strip()


SAYS = {
    "empty": "The study has no trial.",
    "nothing finished": "No complete trial has a value of eval/neg_elbo_per_token yet: no verdict.",
    "one arm": "The study compares no arm with the baseline: no verdict.",
    "one seed": "too few seeds (six common seeds are the least that can decide)",
    "all failed": "12 failed",
    "all diverged": "24 diverged",
    "baseline failed": "shares no finished seed with the baseline",
    "constant metric": "leaves eval/neg_elbo_per_token exactly where it was",
    "infinite metric": "infinite",
}


@pytest.mark.parametrize("state", SAYS)
def test_and_the_sentence_says_what_is_the_matter(state: str, tmp_path: Path) -> None:
    study = STATES[state]()
    trials = study.trials()
    evidence = Evidence(
        study.spec, trials, study.curves(), None, study.facts, tmp_path, "now", (this_look(trials, ""),)
    )
    text = markdown_page(Head("", "", ""), make_sections(evidence)).replace("\\", "")
    assert SAYS[state] in text
