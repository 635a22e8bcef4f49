"""A finished study in a store to which others write too: every reader leaves aside what is none of ours."""

import re
import subprocess
import sys

import optuna
import pytest
from mlflow import MlflowClient
from optuna.trial import TrialState

from tests.integration.conftest import TOY, Place
from tests.integration.test_faults import KILL_AT, study_text
from tests.record.test_foreign_records import HOSTILE, HTML, OURS, plant

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory, databases):
    """A study of two trials that has ended, and what others have written beside them."""
    place = Place(tmp_path_factory.mktemp("shared"), databases)
    (place.path / "toy_workload.py").write_text(TOY.read_text())
    place.write(study_text(place))
    place.lend("toy")
    subprocess.run([sys.executable, KILL_AT, "study.yaml"], cwd=place.path, check=True, capture_output=True)
    study = optuna.load_study(study_name="toy", storage=f"sqlite:///{place.path}/runs/toy/optuna.db")
    for name, value in HOSTILE:
        if name != "seed" or not isinstance(value, int):
            plant(study, **(OURS | {name: value}))
    plant(study, **OURS, state=TrialState.RUNNING)
    plant(study, note=HTML)
    for name, value in {"facts": HTML, "mlflow_runs": [1], "declared": 5, "lease": HTML, "name": 5}.items():
        study.set_user_attr(name, value)
    client = MlflowClient(f"sqlite:///{place.path}/runs/toy/mlflow.db")
    experiment = client.get_experiment_by_name("toy").experiment_id
    trial_id = study.trials[0].user_attrs["trial_id"]
    for tags in (
        {"ablate.trial_id": "../../x", "ablate.attempt": "1"},
        {"ablate.trial_id": trial_id, "ablate.attempt": "one"},
        {"ablate.trial_id": trial_id, "ablate.attempt": "9" * 500},
        {"ablate.trial_id": HTML},
        {"ablate.arm": HTML * 100, "mlflow.parentRunId": "nobody"},
    ):
        run = client.create_run(experiment, run_name=HTML, tags=tags)
        client.log_metric(run.info.run_id, "loss", float("nan"))
    return place


def test_records_of_others_are_left_aside_by_every_reader(finished):
    from ablate.report.build import build_report
    from ablate.run.check import check_study
    from ablate.run.status import status_of

    study = finished.study()
    assert study.trials()["state"].tolist() == ["COMPLETE", "COMPLETE"]
    assert len(study.curves()) > 0
    assert status_of(study).states["COMPLETE"] == 2
    findings = [str(finding) for finding in check_study(study)]
    left_aside = [text for text in findings if re.search(r"trial \d+ in the store is left aside: attribute ", text)]
    assert len(left_aside) == sum(1 for name, value in HOSTILE if name != "seed" or not isinstance(value, int))
    assert all(len(text) < 250 and text.isprintable() for text in findings)
    page = build_report(study, study.folder.report).read_text()
    assert HTML not in page
    outside = {path.name for path in finished.path.iterdir()} - {"__pycache__"}
    assert outside == {"executions.txt", "runs", "study.yaml", "toy_workload.py"}
