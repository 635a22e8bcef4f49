"""The notebooks run on small studies, and are stored with outputs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
IN_PROCESS = ROOT / "tests" / "integration" / "kill_at.py"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

STUDY = """\
version: 1
study: {name}
question: Does the weight matter?
workload: curve_workload:train
baseline: {{weight: 1.0, offset: {offset}}}
factors:
  weight: {{ablate_to: 0, values: [0.5, 1.0, 2.0]}}
designs:
  - leave_one_out: weight
  - one_at_a_time: [weight]
seeds: {{count: 3}}
controls: {{aa: 1}}
metrics:
  primary: {{name: eval/error, goal: minimize, sesoi: 0.05}}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with two finished studies; their trials ran in one process, which is quicker."""
    place = tmp_path_factory.mktemp("studies")
    shutil.copy(Path(__file__).parent / "curve_workload.py", place)
    names = {"one": 0.0, "two": 1.0}
    for name, offset in names.items():
        (place / f"{name}.yaml").write_text(STUDY.format(name=name, offset=offset))
        command = [sys.executable, IN_PROCESS, f"{name}.yaml"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return place / "runs"


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_on_a_small_study(path: Path, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / path.name
    command = [
        sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", str(path), "--output", str(out),
    ]  # fmt: skip
    named = {"ABLATE_RUNS": str(runs), "ABLATE_STUDY": "one", "ABLATE_STUDIES": "one two"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | named, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert outputs(out) >= outputs(path)


def outputs(path: Path) -> int:
    cells = nbformat.read(path, as_version=4).cells
    return sum(1 for cell in cells if cell.cell_type == "code" and cell.outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_stored_with_outputs_and_without_errors_or_paths_of_a_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in code)
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
    kinds = {kind for cell in code for output in cell.outputs for kind in output.get("data", {})}
    assert "image/png" in kinds
    assert not [output for cell in code for output in cell.outputs if output.get("name") == "stderr"]
    assert not re.search(r"/(home|Users|root|tmp|work)/", path.read_text())


def test_the_two_notebooks_are_there() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"post_hoc", "compare_studies"}
