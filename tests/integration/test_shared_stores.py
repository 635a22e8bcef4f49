"""Studies whose records lie on servers: PostgreSQL and MariaDB under Optuna, MLflow's HTTP server before the same."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import optuna
import pytest
from mlflow import MlflowClient
from optuna.storages import RDBStorage

from ablate.spec.addresses import filled_in
from tests.integration import database_servers
from tests.integration.conftest import TOY, Place
from tests.integration.test_kill_points import KILL_AT, LEDGER, TRACKER

pytestmark = pytest.mark.campaign

AS_MACHINE = Path(__file__).parent / "as_machine.py"
ROOT = Path(__file__).parents[2]
SPELLINGS = ("hunter2", "p@ss", "p%40ss")
#: Seconds after which a claim expires here.
EXPIRY_S = 12

STUDY = """
study: {study}
workload: toy_workload:train
baseline: {{x: 1.0, fault: none, steps: 3, sleep: {sleep}, log: executions.txt}}
factors: {{fault: [none, a, b]}}
designs: [{{one_at_a_time: [fault]}}]
seeds: {{count: {seeds}}}
metrics: {{primary: {{name: loss}}}}
"""


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def database(request):
    server = database_servers.NEW[request.param]()
    yield server
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def tracking(database, tmp_path_factory):
    os.environ[database_servers.PASSWORD_VARIABLE] = database_servers.PASSWORD
    server = database_servers.TrackingServer(database, tmp_path_factory.mktemp("tracking"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def password(monkeypatch):
    monkeypatch.setenv(database_servers.PASSWORD_VARIABLE, database_servers.PASSWORD)


@pytest.fixture
def machine(tmp_path):
    """Makes places, each with a run folder of its own."""

    def make(name):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(TOY, folder)
        return Place(folder)

    return make


def write(place, database, study, *, tracking=None, seeds=3, sleep=0.0):
    track = {"optuna": database.address()} | ({"mlflow": tracking.address} if tracking else {})
    text = STUDY.format(study=study, sleep=sleep, seeds=seeds)
    place.write(text + "track:\n" + "".join(f"  {key}: '{value}'\n" for key, value in track.items()))


def start(place, *command):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    arguments = {"cwd": place.path, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, *map(str, command)], env=environment, **arguments)


def start_as(place, host, go=True):
    if go:
        (place.path / "go").touch()
    return start(place, AS_MACHINE, host, "study.yaml", EXPIRY_S)


def ended(process, code=0):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == code, output
    output = " ".join(output.split())  # messages are wrapped
    assert not any(spelling in output for spelling in SPELLINGS)
    return output


def stored(database, study):
    storage = RDBStorage(filled_in(database.address()))
    trials = optuna.load_study(study_name=study, storage=storage).trials
    storage.remove_session()
    storage.engine.dispose()
    assert len({trial.user_attrs["trial_id"] for trial in trials}) == len(trials)
    return trials


def states(database, study):
    return Counter(trial.state.name for trial in stored(database, study))


def test_a_study_on_servers_is_killed_and_resumed(database, tracking, machine):
    place = machine("here")
    write(place, database, "killed", tracking=tracking)
    kills = [
        f"{LEDGER}.add,1,after", f"{LEDGER}.claim,2,after", f"{TRACKER}.start,1,after",
        f"{LEDGER}.note_outcome,1,after", f"{TRACKER}.end,1,before", f"{LEDGER}.finish,1,before",
        f"{LEDGER}.finish,1,after",
    ]  # fmt: skip
    output = ended(start(place, KILL_AT, "study.yaml", *kills))
    assert states(database, "killed") == {"COMPLETE": 9}
    client = MlflowClient(tracking.address)
    experiment = client.get_experiment_by_name("killed").experiment_id
    runs = [run for run in client.search_runs([experiment]) if "ablate.trial_id" in run.data.tags]
    assert Counter(run.info.status for run in runs) == {"FINISHED": 9}
    assert len({run.data.tags["ablate.trial_id"] for run in runs}) == 9
    assert {item.path for item in client.list_artifacts(runs[0].info.run_id)} >= {"history.jsonl", "config.json"}
    out, err = place.ablate("check", "killed")
    assert out == "the records agree\n"

    # the same numbers as without servers
    other = machine("there")
    other.write(STUDY.format(study="killed", sleep=0.0, seeds=3))
    ended(start(other, KILL_AT, "study.yaml"))
    assert other.final_metrics("killed") == place.final_metrics("killed")
    assert {(run.data.tags["ablate.arm"], int(run.data.tags["ablate.seed"])): run.data.metrics["loss"]
            for run in runs} == place.final_metrics("killed")  # fmt: skip

    # the password stands nowhere
    texts = {path: path.read_bytes().decode("latin-1") for path in place.path.rglob("*") if path.is_file()}
    texts |= {"stores": database.everything(), "messages": output + out + err}
    assert [name for name, text in texts.items() for spelling in SPELLINGS if spelling in text] == []
    assert "killed" in texts["stores"]


def test_two_machines_run_different_studies_in_one_store(database, machine):
    places = {host: machine(host) for host in ("alpha", "beta")}
    for host, place in places.items():
        write(place, database, f"study-of-{host}", sleep=0.05)
    processes = [start_as(place, host) for host, place in places.items()]
    for process in processes:
        ended(process)
    for host, place in places.items():
        assert states(database, f"study-of-{host}") == {"COMPLETE": 9}
        assert len(place.executions()) == 9


def test_the_same_study_is_refused_until_its_dead_owner_has_expired(database, machine):
    alpha, beta = machine("alpha"), machine("beta")
    for place in (alpha, beta):
        write(place, database, "contended", sleep=0.8)
    second = start_as(beta, "beta", go=False)
    first = start_as(alpha, "alpha")
    alpha.wait_for_executions(1)
    (beta.path / "go").touch()
    output = ended(second, code=1)
    where = re.escape(str(alpha.path / "runs/contended"))
    assert re.search(rf"the study is being run by process {first.pid} on alpha \({where}\) since ", output)
    assert beta.executions() == []
    alpha.wait_for_executions(3)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    began = time.monotonic()
    ended(start_as(beta, "beta"))
    assert states(database, "contended") == {"COMPLETE": 9}
    assert time.monotonic() - began > EXPIRY_S, "the claim of a dead process is waited for"
    done_by_alpha = sum(1 for _ in alpha.path.glob("runs/contended/trials/*/outcome.json"))
    assert done_by_alpha >= 2
    assert len(beta.executions()) == 9 - done_by_alpha, "what alpha had finished is not run again"


def test_an_owner_that_was_suspended_writes_nothing_any_more(database, machine):
    alpha, beta = machine("alpha"), machine("beta")
    for place in (alpha, beta):
        write(place, database, "suspended", sleep=0.8)
    first = start_as(alpha, "alpha")
    alpha.wait_for_executions(2)
    first.send_signal(signal.SIGSTOP)
    second = start_as(beta, "beta")
    beta.wait_for_executions(2)
    first.send_signal(signal.SIGCONT)
    output = ended(first, code=1)
    assert re.search(rf"the study was taken over by process {second.pid} on beta", output), output
    ended(second)
    assert states(database, "suspended") == {"COMPLETE": 9}


def test_a_server_that_is_away_for_a_while_is_waited_for(database, machine):
    place = machine("here")
    write(place, database, "patient", sleep=1.0)
    process = start_as(place, "here")
    place.wait_for_executions(3)
    database.stop()
    time.sleep(60)
    assert process.poll() is None
    database.start()
    ended(process)
    assert states(database, "patient") == {"COMPLETE": 9}
    assert len(place.executions()) == 9
    assert place.ablate("check", "patient")[0] == "the records agree\n"


def test_a_store_that_comes_back_empty_is_filled_from_the_run_folder(database, machine):
    place = machine("here")
    write(place, database, "emptied", sleep=0.8)
    process = start_as(place, "here")
    place.wait_for_executions(4)
    database.stop()
    database.start()
    database.empty()
    output = ended(process, code=1)
    assert "Traceback" not in output
    assert "nothing recorded so far is lost" in output or "its claim on the study is gone from the store" in output
    finished = sum(1 for _ in place.path.glob("runs/emptied/trials/*/outcome.json"))
    assert finished >= 2
    before = len(place.executions())
    output = ended(start_as(place, "here"))
    assert f"{finished} trials that had ended were missing from the ledger" in output
    assert states(database, "emptied") == {"COMPLETE": 9}
    assert len(place.executions()) - before == 9 - finished
    mended, _ = place.ablate("check", "emptied")  # the MLflow run of the trial that ran, whose note was lost
    assert all(line.startswith("mended: ") or line == "the records agree" for line in mended.splitlines())
    assert place.ablate("check", "emptied")[0] == "the records agree\n"


def test_commands_say_that_a_server_is_down(database, machine):
    place = machine("here")
    write(place, database, "down", seeds=1)
    ended(start_as(place, "here"))
    database.stop()
    try:
        for command in ("status", "report", "check"):
            _, err = place.ablate(command, "down", code=1)
            assert err.startswith(f"ablate: track.optuna {database.address()} cannot be opened: "), err
    finally:
        database.start()
    assert place.status("down")["states"]["COMPLETE"] == 3
