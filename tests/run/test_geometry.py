"""`ablate terms` from a study file alone: the reference pass, the geometry, no training."""

import json
import textwrap

import numpy as np
import pytest

from ablate import cli, open_study
from ablate.cli.arguments import load
from ablate.errors import SpecError, StudyError
from ablate.record.run_folder import RunFolder
from ablate.spec.dumping import dump_study
from losses.reconstruction import TERMS

STUDY = """\
study: tiny
workload: synthetic_sequences
baseline:
  data: {examples: 48, select_examples: 24, report_examples: 24, motifs: 3, length_buckets: [[2, 3], [5, 7]]}
  reference: {width: 8, layers: 1, steps: 20, evaluate_every: 10, batch_size: 16}
factors:
  reconstruction.*_weight: {ablate_to: 0}
  reconstruction.token_weight_alpha: {min: 0, max: 2, levels: 3}
designs: [{leave_one_out: reconstruction.*_weight}]
metrics: {primary: {name: eval/neg_elbo_per_token}}
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(STUDY)
    return tmp_path / "s.yaml"


def test_terms_of_a_study_that_was_never_run(file, capsys):
    cli.terms(file, json=True)
    first = capsys.readouterr()
    found = json.loads(first.out)
    assert first.err == "measuring 4 settings on the reference table in runs/tiny/reference\n"
    assert [point["change"] for point in found["points"]] == [
        "",
        "token_aggregation=token_mean",
        "token_weight_alpha=0",
        "token_weight_alpha=2",
    ]
    assert found["points"][0]["cosines"][0][1] == pytest.approx(1)
    assert found["points"][2]["cosines"][0][3] == pytest.approx(1)
    assert len(found["arms"]) == 7
    cli.terms(file, json=True)
    assert capsys.readouterr() == (first.out, "")  # read, not measured again
    cli.plan(file, json=True)
    assert json.loads(capsys.readouterr().out)["geometry"] == found
    assert not (file.parent / "runs" / "tiny" / "trials").exists()
    cli.terms(file)
    assert "effective rank" in capsys.readouterr().out


def coordinates(file, study, text, capsys):
    """The canonical columns of a study's trials, by arm, its geometry measured on one and the same table."""
    file.write_text(text.replace("study: tiny", f"study: {study}"))
    cli.terms(file, json=True)
    capsys.readouterr()
    folder = RunFolder(file.parent / "runs" / study)
    spec, _ = load(file, None, None)
    folder.study_file.write_text(dump_study(spec))
    frame = open_study(study).trials()
    names = [name for name in frame if name.startswith("canonical.")]
    return open_study(study), frame.groupby("arm", sort=False)[names].first()


def weighted(by):
    """The study with all six weights and beta multiplied."""
    six = ", ".join(f"{term.weight_field}: {by * number}" for number, term in enumerate(TERMS.values(), 1))
    return STUDY.replace("factors:", f"  reconstruction: {{{six}}}\n  kl: {{beta: {by}}}\nfactors:")


def test_two_files_with_different_weights_that_are_one_training_are_seen_to_be_one(file, capsys):
    first, one = coordinates(file, "one", weighted(1.0), capsys)
    _, two = coordinates(file, "two", weighted(4.0), capsys)
    assert first.facts["geometry"]["tokens"] > 0
    np.testing.assert_allclose(two["canonical.scale"], 4 * one["canonical.scale"])
    others = [name for name in one if name != "canonical.scale"]
    np.testing.assert_allclose(one[others], two[others], atol=1e-6, rtol=1e-6)
    assert one.loc["baseline", "canonical.distance"] == 0 < one.loc["-raw_weight", "canonical.distance"]


def test_a_study_that_was_not_measured_has_no_coordinates(file):
    spec, _ = load(file, None, None)
    folder = RunFolder(file.parent / "runs" / "tiny")
    folder.path.mkdir(parents=True)
    folder.study_file.write_text(dump_study(spec))
    study = open_study("tiny")
    assert not [name for name in study.trials() if name.startswith("canonical.")]
    assert "geometry" not in study.facts


def test_a_workload_of_ones_own_gets_a_sentence(file):
    (file.parent / "mine.py").write_text("def train(config, trial):\n    return {}\n")
    file.write_text(
        textwrap.dedent("""\
        study: mine
        workload: mine:train
        baseline: {rate: 0.1}
        factors: {rate: [0.1, 0.2]}
        designs: [{one_at_a_time: rate}]
        metrics: {primary: {name: loss}}
    """)
    )
    with pytest.raises(SpecError, match=r"^mine:train has no term geometry: "):
        cli.terms(file)


def test_a_study_that_runs_is_left_alone(file):
    folder = file.parent / "runs" / "tiny"
    folder.mkdir(parents=True)
    with RunFolder(folder).locked(), pytest.raises(StudyError, match=r"^study tiny is being run by process "):
        cli.terms(file)


def test_a_file_of_sequences(file, capsys):
    """The arms have the file's hash in their configuration, the study has not."""
    (file.parent / "words.txt").write_text(
        "\n".join(f"{first}{second}nd" for first in "abcdefgh" for second in "aeiouy")
    )
    data = "  data: {path: words.txt}\n"
    start = STUDY.index("  data:")
    text = STUDY[:start] + data + STUDY[STUDY.index("  reference:") :]
    file.write_text(text.replace("synthetic_sequences", "sequence_file"))
    cli.terms(file, json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] > found["examples"] > 0
    assert [arm["arm"] for arm in found["arms"] if "distance" not in arm] == []
