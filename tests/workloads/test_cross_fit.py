"""Out-of-fold surprisals: what a reference says of sequences that it has not seen."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from ablate.errors import StudyError
from ablate.workloads import find_workload
from ablate.workloads.sequence_vae.config import Reference
from ablate.workloads.sequence_vae.data_table import open_data, write_sequences
from ablate.workloads.sequence_vae.reference import one_thread, surprisals, train_reference
from ablate.workloads.sequence_vae.reference_table import open_table, prepare_table
from ablate.workloads.synthetic_sequences.config import Config, prepared_key, sequences_key
from ablate.workloads.synthetic_sequences.generator import generate
from ablate.workloads.synthetic_sequences.workload import prepare
from tests.workloads.conftest import tiny

FOLDED = tiny(reference={"cross_fit": 3})


@pytest.fixture(scope="module")
def folded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folds")
    return open_table(prepare(FOLDED, folder).key, folder), open_data(sequences_key(FOLDED), folder)


def test_each_fold_is_scored_by_a_reference_of_the_others(folded):
    table, data = folded
    settings = Config.model_validate(FOLDED).reference
    train = data.sequences.splits["train"]
    folds = np.asarray(data.sequences.units[train]) % 3
    assert sorted(set(folds.tolist())) == [0, 1, 2]
    rows = train[folds == 1]
    others = replace(data.sequences, splits=data.sequences.splits | {"train": train[folds != 1]})
    with one_thread():
        decoder = train_reference(others, settings).decoder
        expected = np.concatenate(list(surprisals(decoder, data.sequences, rows)))
    assert np.array_equal(table.surprisal[rows], expected)


def test_held_out_splits_and_the_data_stay_as_they_are(folded, table):
    crossed, _ = folded
    held_out = slice(table.splits["select"].start, None)
    assert np.array_equal(crossed.surprisal[held_out], table.surprisal[held_out])
    train = table.splits["train"]
    assert (crossed.surprisal[train] != table.surprisal[train]).any()
    assert np.array_equal(crossed.tokens, table.tokens)
    facts = crossed.facts
    assert facts["zfree_reference_scale_token_sum"] == pytest.approx(crossed.surprisal[train].sum(1).mean())
    assert facts["report_reference_nll_per_token"] == table.facts["report_reference_nll_per_token"]


def test_equal_sequences_are_in_one_fold(folded):
    _, data = folded
    rows = [tuple(row) for row in data.sequences.tokens.tolist()]
    assert len({(row, unit) for row, unit in zip(rows, data.sequences.units.tolist(), strict=True)}) == len(set(rows))


def test_it_is_off_unless_asked_for_and_then_no_part_of_an_identity():
    assert Reference().cross_fit == 0
    for name in ("synthetic_sequences", "sequence_file"):
        assert find_workload(name).later["reference.cross_fit"] == 0
    assert prepared_key(FOLDED) != prepared_key(tiny())
    with pytest.raises(ValidationError, match="cross_fit 1 leaves nothing to train on; 0 is off, and 2 the fewest"):
        Reference(cross_fit=1)


def test_one_group_has_no_folds(tmp_path):
    data = generate(Config.model_validate(tiny()).data)
    one = replace(data, units=np.zeros(len(data.tokens), dtype=np.uint64))
    settings = Config.model_validate(FOLDED).reference
    with pytest.raises(StudyError, match="3 folds of one group leave nothing to train on"):
        prepare_table("key", "data", lambda folder: write_sequences(folder, one), settings, tmp_path)
