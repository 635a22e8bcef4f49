from dataclasses import replace

import pytest

from ablate.errors import SpecError, StudyError
from ablate.plan.collinear_groups import waits_for_groups, with_groups
from ablate.plan.planning import Planner
from ablate.record.optuna_storage import LedgerTrial
from ablate.record.run_folder import RunFolder
from ablate.run.preparation import check_references
from ablate.run.stopping import StopRequest
from ablate.run.study import _measured_groups
from ablate.spec.loading import load_study
from ablate.workloads import find_workload, load_object
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


# --- designs whose groups come from the reference table ---

GROUPED = """\
study: grouped
workload: synthetic_sequences
baseline:
  data: {examples: 48, select_examples: 24, report_examples: 24, motifs: 3, length_buckets: [[2, 3], [5, 7]]}
  reference: {width: 8, layers: 1, steps: 20, evaluate_every: 10, batch_size: 16}
factors: {reconstruction.*_weight: {ablate_to: 0}}
designs: [{leave_group_out: auto}]
metrics: {primary: {name: eval/neg_elbo_per_token}}
"""


class InProcess:
    """A session that does in this process what a worker would."""

    def prepare(self, function, config, shared_dir, import_path):
        return load_object(function)(config, shared_dir)

    def ready(self, futures):
        return dict(futures)

    def result(self, future):
        return future

    def cancel(self, futures):
        assert not futures


class Silent:
    def say(self, text):
        self.said = text


def test_the_reference_is_made_first_where_groups_come_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(GROUPED)
    spec, workload = load_study("s.yaml", workload_lookup=find_workload), find_workload("synthetic_sequences")
    folder = RunFolder(tmp_path / "runs" / "grouped")
    found = _measured_groups(spec, Planner(spec, workload), workload, folder, InProcess(), StopRequest(), Silent())
    assert not waits_for_groups(found)
    assert len(Planner(found, workload).plan({}).arms) > 1
    assert with_groups(spec, workload, folder.path).designs == found.designs  # read, not made again


def test_groups_of_a_workload_without_terms_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(GROUPED)
    spec = load_study("s.yaml", workload_lookup=find_workload)
    workload = replace(find_workload("synthetic_sequences"), geometry=None)
    with pytest.raises(SpecError, match=r"^synthetic_sequences has no term geometry: "):
        _measured_groups(spec, Planner(spec, workload), workload, None, None, StopRequest(), Silent())
