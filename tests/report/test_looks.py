"""Looks are recorded, extensions are named, changes after the fact are post hoc."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ablate.report.evidence import Evidence
from ablate.report.looks import (
    Look,
    after_extension,
    read_changes,
    read_looks,
    record_look,
    seed_stages,
    this_look,
)
from ablate.report.verdict_sections import verdicts
from ablate.spec.models import Analysis
from tests.simulated_study import FakeStudy, simulate_study

FEW = {"baseline": 0.0, "-raw_weight": 0.06}


def look_at(study: FakeStudy, folder: Path | None, time: str) -> Evidence:
    trials = study.trials()
    looks = record_look(folder, this_look(trials, time))
    return Evidence(study.spec, trials, study.curves(), folder, {}, Path(), time, looks, read_changes(folder))


def small(seeds: int, **changes: object) -> FakeStudy:
    return simulate_study(seeds=seeds, effects=FEW, diagnostics=0, steps=1, **changes)


def test_each_report_with_new_outcomes_is_a_line(tmp_path: Path) -> None:
    look_at(small(6), tmp_path, "monday")
    look_at(small(6), tmp_path, "tuesday")
    look_at(small(8), tmp_path, "friday")
    lines = [json.loads(line) for line in (tmp_path / "looks.jsonl").read_text().splitlines()]
    assert [(line["time"], len(line["seeds"]), line["outcomes"]) for line in lines] == [
        ("monday", 6, 12),
        ("friday", 8, 16),
    ]


def test_a_report_without_outcomes_is_no_look(tmp_path: Path) -> None:
    evidence = look_at(small(2, failures={(arm, s): "WAITING" for arm in FEW for s in (0, 1)}), tmp_path, "monday")
    assert evidence.looks == ()
    assert not (tmp_path / "looks.jsonl").exists()


def test_verdicts_after_an_undeclared_extension_say_so(tmp_path: Path) -> None:
    assert not look_at(small(6), tmp_path, "monday").extended
    evidence = look_at(small(8), tmp_path, "friday")
    assert evidence.extended
    section = verdicts(evidence)
    assert any(one.lead == "Needed (after extension)" for one in section.sentences)
    assert any("outcomes were looked at with 6, 8 seeds, and analysis.looks declared 1" in r for r in section.remarks)


def test_finishing_what_was_planned_is_no_extension(tmp_path: Path) -> None:
    look_at(small(8, failures={(arm, 7): "WAITING" for arm in FEW}), tmp_path, "monday")
    assert not look_at(small(8), tmp_path, "friday").extended


def test_declared_looks_share_the_error(tmp_path: Path) -> None:
    declared = Analysis(looks=2)
    look_at(small(6, analysis=declared), tmp_path, "monday")
    evidence = look_at(small(8, analysis=declared), tmp_path, "friday")
    assert not evidence.extended
    assert evidence.alpha == pytest.approx(0.025)
    assert "Look 2 of 2 declared: each spends 0.025 of the error of 0.05." in verdicts(evidence).remarks
    assert look_at(small(10, analysis=declared), tmp_path, "sunday").extended


def test_changed_metrics_are_post_hoc(tmp_path: Path) -> None:
    line = {"time": "2026-01-05T10:00:00", "changed": ["metrics"], "finished_trials": 12}
    (tmp_path / "changes.jsonl").write_text(json.dumps(line) + "\n")
    remarks = verdicts(look_at(small(6), tmp_path, "monday")).remarks
    assert remarks[0] == "Post hoc: metrics changed on 2026-01-05T10:00:00, after 12 trials had finished."


def test_stages() -> None:
    def look(seeds: int) -> Look:
        return Look("", tuple(range(seeds)), 1, str(seeds))

    assert seed_stages([look(8), look(8), look(12), look(10), look(16)]) == [8, 12, 16]
    assert not after_extension([look(8)], 1)
    assert after_extension([look(8), look(12)], 1)
    assert not after_extension([look(8), look(12)], 2)


def test_a_torn_line_is_skipped_and_an_exported_study_keeps_no_record(tmp_path: Path) -> None:
    look_at(small(6), tmp_path, "monday")
    with (tmp_path / "looks.jsonl").open("a") as file:
        file.write('{"time": "tue')
    assert [look.time for look in read_looks(tmp_path)] == ["monday"]
    assert len(look_at(small(6), None, "monday").looks) == 1


def test_extending_until_significant_errs_as_often_as_the_report_says() -> None:
    """Null studies of one term, looked at with 8, 12, 16 and 24 seeds: about 12 % reject at one look at least."""
    import numpy as np

    from ablate.analysis.beside import one_sample_t

    rng = np.random.default_rng(0)
    d = rng.normal(size=(24, 20000))
    rejected = np.zeros(20000, dtype=bool)
    for n in (8, 12, 16, 24):
        rejected |= one_sample_t(d[:n])[1] <= 0.05
    assert rejected.mean() == pytest.approx(0.12, abs=0.01)
