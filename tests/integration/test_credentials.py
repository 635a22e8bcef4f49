"""What a variable of an address holds stands in no file, no store and no message, also where connecting fails."""

import re
import subprocess
import sys

import pytest

from tests.integration.test_faults import KILL_AT, study_text

pytestmark = pytest.mark.slow

PASSWORD = "hunter2/p@ss"
SPELLINGS = (b"hunter2", b"p@ss", b"p%40ss", b"/p@")
DEAD_SERVER = "http://ablate:${MLFLOW_SECRET}@127.0.0.1:9"
DEAD_STORE = "postgresql+psycopg://ablate:${STORE_SECRET}@127.0.0.1:9/ablate"


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    monkeypatch.setenv("MLFLOW_SECRET", PASSWORD)
    monkeypatch.setenv("STORE_SECRET", PASSWORD)


def leaks(*texts):
    return [spelling for spelling in SPELLINGS for text in texts if spelling in text]


def in_process(place):
    done = subprocess.run([sys.executable, KILL_AT, "study.yaml"], cwd=place.path, capture_output=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.campaign
def test_a_run_and_its_records_keep_a_password_to_themselves(place):
    place.write(study_text(place) + f"track: {{mlflow: '{DEAD_SERVER}'}}\n")
    code, output = in_process(place)
    assert code == 0, output
    assert b"MLflow does not answer (MlflowException: API request to http://ablate:${MLFLOW_SECRET}@" in output
    _, error = place.ablate("check", "toy", code=1)
    assert error.startswith("ablate: MLflow does not answer: MlflowException: ")
    page, _ = place.ablate("report", "toy")
    _, error = place.ablate("mlflow", "toy", code=1)
    assert error == f"ablate: the measurements are at {DEAD_SERVER}; open that\n"

    assert f'"{DEAD_SERVER}"' in (place.path / "runs/toy/study.yaml").read_text()
    files = [path for path in place.path.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert {path.name: found for path in files if (found := leaks(path.read_bytes()))} == {}
    assert leaks(output, page.encode(), error.encode()) == []


@pytest.mark.campaign
def test_a_store_that_cannot_be_opened_is_named_without_its_password(place):
    pytest.importorskip("psycopg")
    place.write(study_text(place) + f"track: {{optuna: '{DEAD_STORE}'}}\n")
    _, error = place.ablate("run", "study.yaml", code=1)
    assert re.search(r"ablate: track\.optuna (\S+) cannot be opened: .*refused", error)[1] == DEAD_STORE
    assert "Traceback" not in error
    assert leaks(error.encode()) == []

    # from Python the error is shown with what led to it
    code = "import ablate; ablate.run_study('study.yaml')"
    done = subprocess.run([sys.executable, "-c", code], cwd=place.path, capture_output=True, timeout=300)
    assert b"StoreError: track.optuna postgresql+psycopg://ablate:${STORE_SECRET}@" in done.stderr
    assert leaks(done.stdout, done.stderr) == []


def test_a_missing_variable_is_an_error_of_the_file(place, monkeypatch):
    monkeypatch.delenv("STORE_SECRET")
    place.write(study_text(place) + f"track: {{optuna: '{DEAD_STORE}'}}\n")
    line = (place.path / "study.yaml").read_text().count("\n")
    expected = (
        f"study.yaml:{line}:17: track.optuna: the environment variable STORE_SECRET is not set; "
        "it stands in this address\n"
    )
    assert place.ablate("run", "study.yaml", code=2)[1] == expected
    assert place.ablate("validate", "study.yaml", code=2)[1] == expected
    assert not (place.path / "runs").exists()
