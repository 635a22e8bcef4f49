"""Collapsed arms and kept texts, as the report shows them."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from ablate.report.blocks import Table
from ablate.report.collapse_sections import posterior_collapse
from ablate.report.evidence import Evidence
from ablate.report.sample_sections import samples
from tests.analysis.test_collapse import ALIVE, CONFIG, DEAD, NO_CURVES, frame
from tests.simulated_study import study_spec

ARMS = {"baseline": ({}, ALIVE, 1.0), "beta=30.0": ({"kl.beta": 30.0}, DEAD, 30.0)}


def evidence_of(arms, path=None):
    trials = frame(arms).assign(designs="one_at_a_time", replicate=0)
    spec = replace(study_spec(2), baseline=CONFIG)
    return Evidence(spec, trials, NO_CURVES, path, {}, Path(), "now")


def test_a_collapsed_arm_is_named_with_its_cause():
    made = posterior_collapse(evidence_of(ARMS))
    [sentence] = made.sentences
    assert str(sentence) == (
        "beta=30.0 collapsed: 2 of 2 trials: KL 0.00050 nats a latent unit, rate 0.00056 of the distortion. Most "
        "likely because kl.beta is 30.0, the baseline's 1.0: β_eff is 30 instead of 1, so the KL weighs 30 times as "
        "much against the reconstruction."
    )
    [table] = made.blocks
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["beta=30.0", "2 of 2", "0.00050", "0.00056", "30", "kl.beta"]
    ]
    assert list(table.frame["arm"]) == ["baseline", "beta=30.0"], "the csv has every arm"


def test_no_collapse_is_said_too():
    [sentence] = posterior_collapse(evidence_of({"baseline": ARMS["baseline"]})).sentences
    assert str(sentence).startswith("No trial's posterior collapsed. A posterior counts as collapsed where KL is under")
    assert posterior_collapse(evidence_of({"baseline": ({}, {"loss": 1.0}, None)})).absent


@pytest.fixture
def run_folder(tmp_path):
    """Texts of the second seed alone: the first kept none."""
    for arm in ARMS:
        folder = tmp_path / "trials" / f"{arm}/1" / "texts"
        folder.mkdir(parents=True)
        (folder / "samples.tsv").write_text(f'draw\tsample\n0\tof {arm}\n1\t"two\nlines"\n', encoding="utf-8")
        (folder / "traversals.tsv").write_text(f"unit\trate\tvalue\n3\t0.1\t<{arm}>\n", encoding="utf-8")
        (folder / "broken.tsv").write_bytes(b"\xff\xfe")
    return tmp_path


def test_texts_stand_side_by_side_where_their_rows_agree(run_folder):
    made = samples(evidence_of(ARMS, run_folder))
    assert str(made.sentences[0]).startswith("One trial of each arm, of seed 1;")
    tables = {block.name: block for block in made.blocks if isinstance(block, Table)}
    beside = tables["text_samples"]
    assert beside.head == ("draw", "baseline", "beta=30.0")
    assert [[cell.text for cell in row] for row in beside.rows] == [
        ["0", "of baseline", "of beta=30.0"],
        ["1", "two\nlines", "two\nlines"],
    ]
    assert beside.rows[0][2].href == "#arm-1"

    alone = tables["text_traversals"]
    assert alone.title == "Traversals of baseline"
    assert [[cell.text for cell in row] for row in alone.rows] == [["3", "0.1", "<baseline>"]]
    assert list(alone.frame["arm"]) == ["baseline", "beta=30.0"], "the csv has every arm"
    assert "cannot be read" in tables["text_broken"].rows[0][0].text


def test_texts_whose_rows_differ_between_arms_are_the_baselines(run_folder):
    other = run_folder / "trials" / "beta=30.0/1" / "texts" / "samples.tsv"
    other.write_text("draw\tsample\n7\tof another draw\n", encoding="utf-8")
    tables = {block.name: block for block in samples(evidence_of(ARMS, run_folder)).blocks}
    assert tables["text_samples"].title == "Samples of baseline"
    assert tables["text_samples"].head == ("draw", "sample")


def test_a_study_without_texts_has_no_such_section(tmp_path):
    assert samples(evidence_of(ARMS, tmp_path)).absent
    assert samples(evidence_of(ARMS)).absent
    empty = evidence_of(ARMS)
    assert samples(replace(empty, trials=pd.DataFrame())).absent
