"""The examples of a trainer of one's own: each study plans, each trains, stops and goes on."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.plan.planning import make_plan
from ablate.spec.loading import load_study
from ablate.workloads import find_workload, import_path, load_object
from ablate.workloads.contract import Trial, TrialStopped

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*isinstance.treespec, LeafSpec:FutureWarning",  # Lightning under PyTorch 2.13
    "ignore:.*does not have many workers",  # Lightning; these batches are rows of a table
)

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
STUDIES = sorted(EXAMPLES.glob("*.yaml"))
TRAINERS = [path for path in STUDIES if path.stem != "sklearn_model"]
SLOW = [pytest.param(path, marks=pytest.mark.campaign) if path.stem != "plain_pytorch" else path for path in TRAINERS]


@pytest.fixture(autouse=True)
def on_the_import_path():
    with import_path(EXAMPLES):
        yield


def baseline_of(path, **changes):
    spec = load_study(path, workload_lookup=find_workload)
    return load_object(spec.workload), spec.baseline | changes, spec.metrics.primary.name


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_its_study_plans_as_its_header_says(path):
    spec = load_study(path, workload_lookup=find_workload)
    plan = make_plan(spec, find_workload(spec.workload))
    head = path.read_text(encoding="utf-8").partition("\nversion:")[0]
    assert f"# Trials:   {len(plan.arms)} arms" in head
    assert f"x {spec.seeds.count} seeds = {len(plan.trials)}." in head
    assert "# Minutes:" in head
    assert f"# Command:  ablate run examples/{path.name}" in head
    assert plan.power.can_reject


def test_the_forest_fits_and_has_nothing_of_the_loss_stack():
    train, config, primary = baseline_of(EXAMPLES / "sklearn_model.yaml", trees=10)
    first, again, other = (train(config, Trial(seed=seed))[primary] for seed in (0, 0, 1))
    assert 0 < first < math.log(10)
    assert first == again != other
    assert not {name for name, value in vars(sys.modules["sklearn_model"]).items() if "torch" in repr(value)}


@pytest.mark.parametrize("path", TRAINERS, ids=lambda path: path.stem)
def test_it_learns_reports_and_keeps(path, tmp_path):
    train, config, primary = baseline_of(path, steps=100, examples=128)
    kept = []
    trial = Trial(seed=0, checkpoint_dir=tmp_path, on_checkpoint=kept.append)
    final = train(config, trial)
    assert [row.step for row in trial.rows] == kept == [50, 100]
    assert trial.rows[-1].metrics[primary] == final[primary] < trial.rows[0].metrics[primary]


@pytest.mark.parametrize("path", SLOW, ids=[path.stem for path in TRAINERS])
def test_it_ends_when_told_and_goes_on_from_its_checkpoint(path, tmp_path):
    train, config, _ = baseline_of(path, steps=100, examples=64)

    def stop(row):
        if row.step == 100:
            raise TrialStopped

    with pytest.raises(TrialStopped):
        train(config, Trial(seed=0, checkpoint_dir=tmp_path, on_report=stop))
    going_on = Trial(seed=0, checkpoint_dir=tmp_path)
    train(config, going_on)
    assert [row.step for row in going_on.rows] == [100]


def test_a_checkpoint_of_the_plain_loop_changes_nothing(tmp_path):
    train, config, _ = baseline_of(EXAMPLES / "plain_pytorch.yaml", steps=70, examples=64)
    whole = train(config, Trial(seed=3))
    train(config | {"steps": 50}, Trial(seed=3, checkpoint_dir=tmp_path))
    assert train(config, Trial(seed=3, checkpoint_dir=tmp_path)) == whole


@pytest.mark.campaign
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_its_study_runs(path, tmp_path):
    command = [Path(sys.executable).parent / "ablate", "run", path, "--runs", tmp_path, "--seeds", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_file()
