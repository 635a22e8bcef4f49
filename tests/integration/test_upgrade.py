"""A run folder that version 0.1.0 left is opened, reported, extended and run again by this one.

It was made by a run without Ray of the study file inside it, in /home/researcher/work; `trials.csv` is what
`open_study(...).trials()` said of it then.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from ablate import open_study

pytestmark = pytest.mark.slow

KEPT = Path(__file__).parent.parent / "record" / "study_of_0_1.zip"
EXTENDED = """
import sys
from pathlib import Path
import ablate.run.study as study_module
from ablate.run.progress import ConsoleProgress
from ablate.run.invocation import RunOptions
from ablate.run.study import execute
from ablate.spec.loading import load_study
from ablate.workloads import find_workload, import_path
from tests.integration.kill_at import in_process

study_module.ray_session = in_process
with import_path(Path(".")):
    spec = load_study("study.yaml", workload_lookup=find_workload)
sys.exit(execute(spec, RunOptions(on_new_code="keep_old", retry_failed=True), ConsoleProgress("toy")).exit_code)
"""


@pytest.fixture
def old(place, monkeypatch):
    monkeypatch.chdir(place.path)  # where its workload is found, its own folder being gone
    (place.path / "toy_workload.py").unlink()
    with zipfile.ZipFile(KEPT) as file:
        file.extractall(place.path)
    return place


def compared(trials):
    columns = ["trial_id", "arm", "seed", "state", "reason", "metric.loss"]
    return trials[columns].fillna({"reason": ""}).reset_index(drop=True)


def test_a_study_of_an_earlier_version_is_read_reported_and_extended(old):
    then = compared(pd.read_csv(old.path / "trials.csv"))
    pd.testing.assert_frame_equal(compared(old.study().trials()), then)
    assert old.study().curves().groupby("metric").size().to_dict() == {"aux/step": 54, "loss": 54}
    old.ablate("report", "toy")
    assert (old.path / "runs/toy/report/index.html").exists()

    text = (old.path / "study.yaml").read_text().replace("count: 6", "count: 7").replace("[0.5x, 1x]", "[0.5x, 1x, 2x]")
    old.write(text)
    done = subprocess.run([sys.executable, "-c", EXTENDED], cwd=old.path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    trials = old.study().trials()
    assert len(trials) == 7 * 4
    merged = compared(trials).merge(then, on="trial_id", suffixes=("", "_then"))
    assert len(merged) == 18, "every identity is what it was"
    assert (merged["state"] == merged["state_then"]).all()
    pd.testing.assert_series_equal(merged["metric.loss"], merged["metric.loss_then"], check_names=False)
    assert trials["attempt"].unique().tolist() == [1], "what had ended was not run again"
    assert old.ablate("check", "toy")[0] == "the records agree\n"
    kept = {Path(run.info.artifact_uri.removeprefix("file://")).parent.parent for run in old.mlflow_runs()}
    assert kept == {old.path.resolve() / "runs/toy/artifacts"}, "it was moved, and artifacts go where it is now"
    assert open_study("toy", old.path / "runs").spec.seeds.count == 7
