"""Studies run as a user runs them: the installed command, in a folder of their own, on real Ray, Optuna and MLflow."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest
from mlflow import MlflowClient

from ablate import open_study
from ablate.record.optuna_storage import open_storage
from ablate.workloads import BUILT_IN

ABLATE = Path(sys.executable).parent / "ablate"
HERE = Path(__file__).parent
TOY = HERE / "toy_workload.py"


@dataclass
class Place:
    """A folder with a study file `study.yaml` and the toy workload."""

    path: Path
    databases: Path | None = None
    command: tuple[str | Path, ...] = (ABLATE,)

    def lend(self, name):
        """Put databases without a study into a run folder that has none, which saves the seconds of making them."""
        folder = self.path / "runs" / name
        if self.databases is not None and not folder.exists():
            folder.mkdir(parents=True)
            for database in self.databases.glob("*.db"):
                shutil.copy(database, folder)

    def write(self, text):
        (self.path / "study.yaml").write_text(text)

    def start(self, *arguments):
        return subprocess.Popen(
            [*self.command, *arguments], cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ablate(self, *arguments, code=0):
        if arguments[0] == "run" and code == 0:
            self.lend("toy")
        process = self.start(*arguments)
        out, err = process.communicate(timeout=400)
        assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        return out, err

    def executions(self):
        path = self.path / "executions.txt"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_executions(self, count):
        deadline = time.monotonic() + 120
        while len(self.executions()) < count:
            assert time.monotonic() < deadline, "the study does not get on"
            time.sleep(0.05)

    def study(self, name="toy"):
        return open_study(name, self.path / "runs")

    def optuna_trials(self, name="toy"):
        return optuna.load_study(study_name=name, storage=f"sqlite:///{self.path}/runs/{name}/optuna.db").trials

    def mlflow_runs(self, name="toy"):
        client = MlflowClient(f"sqlite:///{self.path}/runs/{name}/mlflow.db")
        experiment = client.get_experiment_by_name(name).experiment_id
        return [run for run in client.search_runs([experiment]) if "ablate.trial_id" in run.data.tags]

    def final_metrics(self, name="toy"):
        frame = self.study(name).trials()
        return {(row.arm, row.seed): row["metric.loss"] for _, row in frame.iterrows()}

    def status(self, name="toy"):
        return json.loads(self.ablate("status", name, "--json")[0])


@pytest.fixture(scope="session")
def databases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("databases")
    open_storage(None, folder).remove_session()
    MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments(max_results=1)
    return folder


@pytest.fixture
def place(tmp_path, databases):
    shutil.copy(TOY, tmp_path)
    return Place(tmp_path, databases)


@pytest.fixture
def packed_place(tmp_path, databases, monkeypatch):
    """One with the packed workload, in its command and in this process."""
    shutil.copy(HERE / "packed_toy.py", tmp_path)
    monkeypatch.setitem(BUILT_IN, "packed_toy", "packed_toy:WORKLOAD")
    return Place(tmp_path, databases, (sys.executable, HERE / "with_packed_toy.py"))


@pytest.fixture
def interrupt():
    """Send a signal to a process that was started in the background of a shell or not."""
    return lambda process, number=signal.SIGINT: os.kill(process.pid, number)
