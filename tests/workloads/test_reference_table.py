"""The reference and its table: made once, whole, the same bytes again."""

import json
import shutil
import threading

import numpy as np
import pytest
import torch

from ablate.errors import StudyError
from ablate.workloads.sequence_vae.config import Reference
from ablate.workloads.sequence_vae.data import PAD, target_mask
from ablate.workloads.sequence_vae.data_table import write_sequences
from ablate.workloads.sequence_vae.reference import one_thread, train_reference
from ablate.workloads.sequence_vae.reference_table import open_table, prepare_table
from ablate.workloads.sequence_vae.table_files import META
from ablate.workloads.synthetic_sequences.config import Config, prepared_key, sequences_key
from ablate.workloads.synthetic_sequences.generator import generate
from ablate.workloads.synthetic_sequences.workload import prepare
from tests.workloads.conftest import tiny

KEY = prepared_key(tiny())
DATA = sequences_key(tiny())


@pytest.fixture
def folder(shared_dir, tmp_path):
    """A copy of the shared folder that a test may damage."""
    shutil.copytree(shared_dir, tmp_path / "reference")
    return tmp_path / "reference"


def bytes_of(folder):
    return {path.name: path.read_bytes() for key in (KEY, DATA) for path in sorted((folder / key).iterdir())}


def tables(folder):
    """The tables of a folder; a lock of each table may be left beside them, and nothing else."""
    assert {path.name for path in folder.glob(".*")} <= {f".{KEY}.lock", f".{DATA}.lock"}
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def no_data(folder):
    raise AssertionError("the data were made again")


def test_a_whole_table_is_left_as_it_is(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/*")}
    prepared = prepare_table(KEY, DATA, no_data, Reference(), folder)
    assert prepared.warnings == ()
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/*")} == before


def test_references_over_the_same_data_share_its_table(folder):
    other = tiny(reference={"seed": 1})
    prepare_table(prepared_key(other), DATA, no_data, Config.model_validate(other).reference, folder)
    first, second = open_table(KEY, folder), open_table(prepared_key(other), folder)
    assert first.tokens.filename == second.tokens.filename
    assert (first.surprisal != second.surprisal).any()


def test_it_comes_out_the_same_bytes_whatever_the_threads(shared_dir, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        prepared = prepare(tiny(), tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert bytes_of(tmp_path) == bytes_of(shared_dir)
    assert prepared.sha256 == json.loads((shared_dir / KEY / META).read_text())["files"]["surprisal.npy"]["sha256"]
    assert tables(tmp_path) == sorted([KEY, DATA])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("key", "damage", "said"),
    [
        (KEY, lambda table: flip(table / "surprisal.npy"), "surprisal.npy has another checksum"),
        (DATA, lambda table: flip(table / "factors.npy"), "factors.npy has another checksum"),
        (DATA, lambda table: (table / "tokens.npy").write_bytes(b""), "tokens.npy has 0 bytes, "),
        (DATA, lambda table: (table / "lengths.npy").unlink(), "FileNotFoundError: "),
        (KEY, lambda table: (table / META).write_text("{"), "JSONDecodeError: "),
        (DATA, lambda table: (table / META).write_text("[]"), "TypeError: "),
        (KEY, lambda table: (table / META).unlink(), "FileNotFoundError: "),
    ],
)
def test_a_damaged_table_is_made_again_with_a_warning(folder, shared_dir, key, damage, said):
    damage(folder / key)
    (warning,) = prepare(tiny(), folder).warnings
    assert warning.startswith(f"the {'data' if key == DATA else 'reference'} table {key} is damaged ({said}")
    assert warning.endswith("): it is made again")
    assert bytes_of(folder) == bytes_of(shared_dir)
    assert tables(folder) == sorted([KEY, DATA])


def test_a_reference_over_other_data_is_made_again(folder, shared_dir):
    meta = json.loads((folder / KEY / META).read_text())
    (folder / KEY / META).write_text(json.dumps(meta | {"data_sha256": "0" * 64}))
    (warning,) = prepare(tiny(), folder).warnings
    assert "is damaged (its data_sha256 is 0000" in warning
    assert bytes_of(folder) == bytes_of(shared_dir)


def test_of_two_that_make_it_at_once_one_does(tmp_path):
    both_have_begun = threading.Barrier(2, timeout=60)
    config = Config.model_validate(tiny())
    made, written = [], []

    def write(folder):
        written.append(folder)
        return write_sequences(folder, generate(config.data))

    def make():
        both_have_begun.wait()
        made.append(prepare_table(KEY, DATA, write, config.reference, tmp_path))

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made[0] == made[1]
    assert len(written) == 1
    assert tables(tmp_path) == sorted([KEY, DATA])


def test_what_was_left_by_a_killed_process_does_no_harm(shared_dir, tmp_path):
    (tmp_path / f".{DATA}-00000000").mkdir()
    (tmp_path / f".{DATA}-00000000" / "tokens.npy").write_bytes(b"half")
    prepare(tiny(), tmp_path)
    assert bytes_of(tmp_path) == bytes_of(shared_dir)


def test_a_trial_never_makes_it(folder, tmp_path):
    with pytest.raises(StudyError, match="it is not there; `ablate run` makes it before the first trial"):
        open_table(KEY, tmp_path / "nowhere")
    (folder / KEY / "surprisal.npy").write_bytes(b"short")
    with pytest.raises(StudyError, match=r"surprisal\.npy has 5 bytes, .* were written; `ablate run` makes it"):
        open_table(KEY, folder)


def test_rows_stand_split_by_split(table):
    data = generate(Config.model_validate(tiny()).data)
    assert table.splits == {"train": slice(0, 48), "select": slice(48, 72), "report": slice(72, 96)}
    assert table.factor_names == tuple(data.factors)
    for name, rows in table.splits.items():
        drawn = {tuple(row) for row in np.column_stack([data.tokens, data.optimal_nll])[data.splits[name]]}
        kept = {tuple(row) for row in np.column_stack([table.tokens, table.optimal_nll])[rows]}
        assert kept == drawn
    assert (np.asarray(table.tokens[table.splits["train"]]) == data.tokens[data.splits["train"]]).all()
    report = np.asarray(table.tokens[table.splits["report"]])
    assert not (report == data.tokens[data.splits["report"]]).all()  # in hash order, not as drawn


def test_surprisals_stand_where_there_are_targets(table):
    mask = target_mask(table.lengths, table.surprisal.shape[1])
    assert (mask == (np.asarray(table.tokens)[:, 1:] != PAD)).all()
    assert (table.surprisal[mask] > 0).all()
    assert (table.surprisal[~mask] == 0).all()


def test_facts_are_means_of_the_table(table):
    train = table.splits["train"]
    surprisal, targets = np.asarray(table.surprisal[train], dtype=float), np.asarray(table.lengths[train]) - 1
    facts = table.facts
    assert facts["zfree_reference_scale_token_sum"] == pytest.approx(surprisal.sum(1).mean())
    assert facts["zfree_reference_scale_token_mean"] == pytest.approx((surprisal.sum(1) / targets).mean())
    assert facts["train_reference_nll_per_token"] == pytest.approx(surprisal.sum() / targets.sum())
    report = table.splits["report"]
    tokens = (np.asarray(table.lengths[report]) - 1).sum()
    assert facts["report_bayes_nll_per_token"] == pytest.approx(np.asarray(table.optimal_nll[report]).sum() / tokens)
    assert facts["report_factor_nll_per_token"] == pytest.approx(np.asarray(table.factor_nll[report]).sum() / tokens)


def test_training_stops_once_select_no_longer_falls():
    data = generate(Config.model_validate(tiny()).data)
    settings = Reference(width=8, layers=1, steps=1000, evaluate_every=5, patience=2, learning_rate=0.05, batch_size=8)
    with one_thread():
        trained = train_reference(data, settings)
    assert trained.steps == trained.best_step + 10
    assert trained.steps < 1000
    assert not any(p.requires_grad for p in trained.decoder.parameters())


def test_the_reference_comes_within_three_percent_of_the_optimum(tmp_path):
    facts = prepare({}, tmp_path).facts
    for split in ("select", "report"):
        assert facts[f"{split}_reference_nll_per_token"] < 1.03 * facts[f"{split}_bayes_nll_per_token"]
