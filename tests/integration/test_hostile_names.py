"""Names in a study file choose no path: all that is written lies in the run folder, whatever they hold."""

import subprocess
import sys

import pytest

from tests.integration.test_faults import KILL_AT

pytestmark = pytest.mark.slow

STUDY = """
study: toy
question: "<script>alert(1)</script> ../../../../escape"
workload: toy_workload:train
baseline: {{x: 1.0, fault: none, steps: 2, sleep: 0.0, log: executions.txt}}
factors:
  fault: [none, "../../../../escape", "<img src=x onerror=alert(1)>", "/{folder}/escape", "a\\u0000b", "\\e[2J"]
designs: [{{one_at_a_time: [fault]}}]
seeds: {{count: 1}}
metrics: {{primary: {{name: loss}}}}
"""


def test_names_choose_no_path_and_are_shown_as_text(place):
    text = STUDY.format(folder=place.path).replace("\\u0000", "\\u0001")
    place.write(text)
    place.lend("toy")
    subprocess.run([sys.executable, KILL_AT, "study.yaml"], cwd=place.path, check=True, capture_output=True)
    assert [trial.state.name for trial in place.optuna_trials()] == ["COMPLETE"] * 6
    found = {path.name for path in place.path.iterdir()} - {"__pycache__"}
    assert found == {"executions.txt", "runs", "study.yaml", "toy_workload.py"}
    folder = place.path / "runs/toy"
    assert {path.name for path in (place.path / "runs").iterdir()} == {"toy"}
    assert not [path for path in folder.rglob("*") if "escape" in path.name or "img" in path.name]
    assert not list(place.path.parent.rglob("*escape*"))

    from ablate.report.build import build_report

    page = build_report(place.study(), folder / "report").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page
