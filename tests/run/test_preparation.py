import pytest

from ablate.errors import StudyError
from ablate.record.optuna_storage import LedgerTrial
from ablate.run.preparation import check_references
from ablate.workloads.contract import Prepared


def entry(trial_id, sha256, state="COMPLETE", key="k"):
    provenance = {"reference_key": key, "reference_sha256": sha256}
    attributes = {"arm": "baseline", "seed": 0, "provenance": provenance}
    return LedgerTrial(1, 0, trial_id, 1, state, attributes, None, None)


def latest(*entries):
    return {found.trial_id: found for found in entries}


PREPARED = {"k": Prepared("k", "new", {})}


def test_trials_over_other_bytes_of_the_same_table_are_named():
    found = latest(entry("aaaaaaaaaaaa", "old"), entry("bbbbbbbbbbbb", "new"), entry("cccccccccccc", "old", "FAIL"))
    with pytest.raises(StudyError) as caught:
        check_references(PREPARED, found)
    assert str(caught.value) == (
        "the reference table was made again and came out with other bytes than 1 finished trials used: "
        "baseline · seed 0 (aaaaaaaaaaaa); --accept-new-reference goes on all the same, "
        "contrasts across the two are refused"
    )


def test_other_tables_and_trials_without_one_are_no_matter():
    check_references(PREPARED, latest(entry("aaaaaaaaaaaa", "new"), entry("bbbbbbbbbbbb", "old", key="another")))
    without = LedgerTrial(1, 0, "dddddddddddd", 1, "COMPLETE", {"arm": "a", "seed": 0}, None, None)
    check_references(PREPARED, latest(without))
