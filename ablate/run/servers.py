"""The dashboards of Optuna and MLflow, on loopback."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

from ablate.errors import StudyError
from ablate.record.frames import Study
from ablate.record.sqlite_files import sqlite_url
from ablate.spec.addresses import filled_in

LOOPBACK = "127.0.0.1"
DASHBOARD_STORAGE = "ABLATE_DASHBOARD_STORAGE"
SERVE_DASHBOARD = f"""
import os, sys, optuna_dashboard
host, port = sys.argv[1:]
print(f"Listening on http://{{host}}:{{port}}/", flush=True)
optuna_dashboard.run_server(os.environ.pop({DASHBOARD_STORAGE!r}), host=host, port=int(port))
"""


def serve_dashboard(study: Study, port: int) -> None:
    """Serve the Optuna dashboard until interrupted.

    Raises: StudyError where it is not installed.
    """
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise StudyError("optuna-dashboard is not installed; it comes with: pip install 'ablate-toolkit[dashboard]'")
    address = study.spec.track.optuna
    url = sqlite_url(study.path / "optuna.db") if address is None else filled_in(address)
    # not on the command line, which every user of this machine can read
    _serve([sys.executable, "-c", SERVE_DASHBOARD, LOOPBACK, str(port)], {DASHBOARD_STORAGE: url})


def serve_mlflow(study: Study, port: int) -> None:
    """Serve MLflow's pages until interrupted.

    Raises: StudyError where the records are on a server of their own.
    """
    if study.spec.track.mlflow is not None:
        raise StudyError(f"the measurements are at {study.spec.track.mlflow}; open that")
    url = sqlite_url(study.path / "mlflow.db")
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    server = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", url]
    _serve([*server, "--host", LOOPBACK, "--port", str(port)])


def _serve(command: list[str], environment: dict[str, str] | None = None) -> None:
    process = subprocess.Popen(command, env=os.environ | (environment or {}))
    try:
        process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
