"""What others wrote into a store under our names is data: left aside, or named; it never ends in a traceback."""

import json
import sqlite3

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from ablate.errors import StudyError
from ablate.record.foreign_records import LONGEST_ERROR, fault_of, shortened
from ablate.record.optuna_search import search_results
from ablate.record.optuna_storage import Ledger

HTML = "<script>alert(1)</script>"
OURS = {
    "trial_id": "0123456789ab",
    "arm": "baseline",
    "seed": 0,
    "replicate": 0,
    "designs": "grid",
    "attempt": 1,
    "metrics": {"loss": 0.5, "odd": "nan"},
    "outcome": {"state": "COMPLETE", "reason": "", "value": 0.5, "error": ""},
    "provenance": {"code_hash": "abc"},
    "mlflow_run_id": "f" * 32,
}
HOSTILE = [
    ("trial_id", "../../../etc"),
    ("trial_id", 12),
    ("trial_id", "0123456789ab\n"),
    ("arm", ["a"]),
    ("arm", "x" * 10**6),
    ("seed", "0"),
    ("seed", True),
    ("seed", 10**400),
    ("replicate", None),
    ("designs", {"a": 1}),
    ("attempt", 0),
    ("attempt", 10**9),
    ("attempt", "1"),
    ("deaths", "many"),
    ("metrics", [1]),
    ("metrics", {"loss": HTML}),
    ("metrics", {"loss": {"a": 1}}),
    ("outcome", "COMPLETE"),
    ("outcome", {"state": "DONE", "reason": "", "value": 0.5, "error": ""}),
    ("outcome", {"state": "COMPLETE", "reason": "", "value": None, "error": ""}),
    ("outcome", {"state": "FAIL", "reason": ["x"], "value": None, "error": ""}),
    ("outcome", {"state": "FAIL", "reason": "died"}),
    ("provenance", "abc"),
    ("provenance", {"code_hash": 5}),
    ("mlflow_run_id", "../../x"),
    ("mlflow_run_id", "x" * 65),
]


def test_what_we_write_is_ours():
    assert fault_of(OURS) is None
    assert fault_of({name: OURS[name] for name in ("trial_id", "arm", "seed", "replicate", "designs")}) is None


@pytest.mark.parametrize(("name", "value"), HOSTILE)
def test_an_attribute_of_another_type_is_named_in_one_short_line(name, value):
    fault = fault_of(OURS | {name: value})
    assert fault.startswith(f"attribute {name} is ")
    assert len(fault) < 150
    assert fault.isprintable()


@pytest.mark.parametrize("name", ["trial_id", "arm", "seed", "replicate", "designs"])
def test_an_attribute_that_is_missing_is_named(name):
    rest = {key: value for key, value in OURS.items() if key != name}
    assert fault_of(rest) == f"attribute {name} is missing"


def test_an_error_of_any_length_can_be_stored():
    text = shortened("\U0001f600" * 10**6)
    assert len(json.dumps(text)) < 65_535
    assert text.startswith("\U0001f600")
    assert f"[… {10**6 - LONGEST_ERROR} characters …]" in text
    assert shortened("short") == "short"


def plant(study, **attributes):
    """A finished trial that someone else wrote, with a parameter's values of his own."""
    state = attributes.pop("state", TrialState.COMPLETE)
    values = {"value": 0.25} if state == TrialState.COMPLETE else {}
    study.add_trial(create_trial(state=state, user_attrs=attributes, **values))


def test_a_record_that_is_no_json_is_one_line(tmp_path):
    ledger = Ledger.create(None, tmp_path, "s", "minimize")
    ledger.storage.create_new_trial(1, create_trial(state=TrialState.COMPLETE, value=1.0, user_attrs=OURS))
    ledger.close()
    connection = sqlite3.connect(tmp_path / "optuna.db")
    with connection:
        connection.execute("UPDATE trial_user_attributes SET value_json = '{'")
    connection.close()
    ledger = Ledger.find(None, tmp_path, "s")
    with pytest.raises(StudyError, match=r"it holds what Optuna cannot read \(JSONDecodeError: "):
        ledger.attempts()
    ledger.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("values", HTML), ("shares", {"a": HTML}), ("seeds", "all"), ("trial_ids", ["../x"]), ("arm", 5), ("again", "x")],
)
def test_a_proposal_of_others_is_one_line(tmp_path, name, value):
    ledger = Ledger.create(None, tmp_path, "s", "minimize")
    ours = {"values": {}, "shares": {}, "seeds": [0], "trial_ids": ["0123456789ab"], "arm": "search-1/0"}
    search = optuna.create_study(study_name="s/search-1", storage=ledger.storage)
    plant(search, **ours)
    assert len(search_results(ledger, "s", ["search-1"])["search-1"].proposals) == 1
    plant(search, **(ours | {name: value}))
    with pytest.raises(
        StudyError, match=rf"^proposal 1 of a search in the store was not written .*attribute {name} is "
    ):
        search_results(ledger, "s", ["search-1"])
    ledger.close()
