"""`ablate terms` from a study file alone: the reference pass, the geometry, no training."""

import json
import textwrap

import pytest

from ablate import cli
from ablate.errors import SpecError, StudyError
from ablate.record.run_folder import RunFolder

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
