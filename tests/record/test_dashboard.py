"""What the ledger stores, optuna-dashboard can show."""

import json
import math

import pytest

from ablate.record.optuna_storage import Ledger, Outcome
from tests.record.test_optuna_storage import plan_of

wsgi = pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed").wsgi


@pytest.fixture
def page(tmp_path):
    from optuna.storages import RDBStorage
    from werkzeug.test import Client

    ledger = Ledger.create(None, tmp_path, "s", "minimize")
    plan = plan_of(
        (1.0, "sum", 1, [[32, 32], [64]]), (0.5, "max", 2, {"a": 1}), (2.0, "mean", 1, None), (2.0, "sum", 1, True)
    )
    ledger.add(plan.trials, plan)
    outcomes = [
        Outcome("COMPLETE", value=0.5, metrics={"loss": 0.5, "odd": math.inf}),
        Outcome("FAIL", "diverged", value=math.inf, metrics={"loss": math.inf}),
        Outcome("PRUNED", value=0.75, metrics={"loss": 0.75}),
    ]
    for entry, outcome in zip(ledger.attempts(), outcomes, strict=False):
        ledger.claim(entry)
        ledger.report(entry, 1, 1.0)
        ledger.note_outcome(entry, outcome)
        ledger.finish(entry, outcome)
    ledger.close()
    return Client(wsgi(RDBStorage(f"sqlite:///{tmp_path}/optuna.db")))


def test_lists_mappings_infinities_and_every_state_are_shown(page):
    assert page.get("/api/studies").status_code == 200
    answer = page.get("/api/studies/1")
    assert answer.status_code == 200
    detail = json.loads(answer.get_data(as_text=True), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    trials = detail["trials"]
    assert [trial["state"] for trial in trials] == ["Complete", "Fail", "Pruned", "Waiting"]
    params = [{param["name"]: param["param_external_value"] for param in trial["params"]} for trial in trials]
    assert params[1] == {"weight": "0.5", "mode": "max", "layers": "2"}
