"""From a file to its table: splits, tokens, factors, and the account of what was done."""

import json

import numpy as np
import pytest

from ablate.errors import StudyError
from ablate.workloads.sequence_file import scan, spool
from ablate.workloads.sequence_file import table as table_module
from ablate.workloads.sequence_vae.data import BOS, EOS, PAD
from tests.workloads.sequence_files import WORDS, table_of, texts_of, written


def splits_of(table):
    """Each row's text with the split it is in."""
    texts = texts_of(table)
    return {texts[row]: name for name, (start, stop) in table.bounds.items() for row in range(start, stop)}


def test_every_sequence_is_in_one_split_with_its_tokens(tmp_path):
    table = table_of(written(tmp_path, "\n".join(WORDS)))
    assert sorted(texts_of(table)) == sorted(WORDS)
    assert [stop - start for start, stop in table.bounds.values()] == [35, 21, 19]
    rows = table.sequences
    for row, length, text in zip(rows.tokens, rows.lengths, texts_of(table), strict=True):
        assert length == len(text) + 2
        assert (row[0], row[length - 1], set(row[length:].tolist())) == (BOS, EOS, {PAD} if length < 6 else set())
    assert table.notes == ()


def test_splits_hang_on_content_alone(tmp_path):
    one = splits_of(table_of(written(tmp_path, "\n".join(WORDS))))
    (tmp_path / "b").mkdir()
    other = splits_of(table_of(written(tmp_path / "b", "\n".join([*reversed(WORDS), "dada"]), "other.txt")))
    assert {text: split for text, split in other.items() if text != "dada"} == one
    (tmp_path / "c").mkdir()
    assert splits_of(table_of(written(tmp_path / "c", "\n".join(WORDS)), split_seed=1)) != one


def test_train_keeps_the_order_of_the_file_and_the_others_stand_by_hash(tmp_path):
    table = table_of(written(tmp_path, "\n".join(WORDS)))
    texts = texts_of(table)
    train, report = (texts[slice(*table.bounds[name])] for name in ("train", "report"))
    assert train == [word for word in WORDS if word in train]
    assert report != [word for word in WORDS if word in report]


def test_a_group_is_in_one_split(tmp_path):
    rows = [(f"lemma{i}", f"lemma{i}{ending}", "SG") for i in range(60) for ending in ("", "en", "s")]
    rows += [("lemma1", "same", "PL"), ("lemma2", "same", "PL"), ("lemma3", "same", "PL"), ("lemma4", "same", "PL")]
    content = "".join("\t".join(row) + "\n" for row in rows)
    table = table_of(written(tmp_path, content, "d.tsv"), header=False, text=2, group=1, factors={"number": 3})
    splits = splits_of(table)
    for i in range(60):
        assert len({splits[f"lemma{i}{ending}"] for ending in ("", "en", "s")}) == 1
    assert table.facts["repeated_sequences"] == 3
    assert table.facts["sequences_in_two_splits"] == 1
    assert table.notes == (
        "d.tsv: 3 of 184 sequences repeat another one",
        "d.tsv: 1 distinct sequences stand in more than one split, as the split is by group",
    )
    assert table.levels == {"number": ("PL", "SG")}
    number = table.sequences.factors["number"]
    assert {(text, int(level)) for text, level in zip(texts_of(table), number, strict=True) if level == 0} == {
        ("same", 0)
    }
    units = dict(zip(texts_of(table), table.sequences.units, strict=True))
    assert units["lemma7"] == units["lemma7en"] != units["lemma8"]


def test_equal_sequences_stand_together(tmp_path):
    table = table_of(written(tmp_path, "\n".join(WORDS * 3)))
    splits = [(text, name) for name, (a, b) in table.bounds.items() for text in texts_of(table)[a:b]]
    assert len(splits) == 225
    assert len(set(splits)) == 75
    assert table.notes == ("data.txt: 150 of 225 sequences repeat another one",)


def test_a_level_for_what_is_missing_or_no_row(tmp_path):
    content = "text\tf\n" + "".join(f"{word}\t{'' if i % 5 == 0 else 'x'}\n" for i, word in enumerate(WORDS))
    kept = table_of(written(tmp_path, content, "d.tsv"), factors={"f": "f"})
    assert kept.levels == {"f": ("(none)", "x")}
    (tmp_path / "b").mkdir()
    dropped = table_of(written(tmp_path / "b", content, "d.tsv"), factors={"f": "f"}, incomplete="drop")
    assert dropped.levels == {"f": ("x",)}
    assert len(dropped.sequences.tokens) == 60
    assert dropped.notes == ("d.tsv: 15 sequences that lack a factor are left out",)


def test_empty_sequences_are_left_out_and_single_characters_stay(tmp_path):
    table = table_of(written(tmp_path, "\n".join(["", *WORDS, "", "q"])))
    assert table.notes == ("data.txt: 2 empty sequences are left out",)
    assert "q" in texts_of(table) or table.facts["unknown_tokens"] == 1
    assert table.sequences.lengths.min() == 3


def test_what_is_too_long_is_cut_without_an_end(tmp_path):
    table = table_of(written(tmp_path, "\n".join([*WORDS, "kæmpestort"])), max_tokens=4, tokenizer="bytes")
    rows = table.sequences
    assert rows.tokens.shape[1] == 6
    cut = [row.tolist() for row in rows.tokens if EOS not in row]
    assert cut == [[BOS, *(b + 3 for b in "kæm".encode()), PAD]]
    assert rows.lengths[[EOS not in row for row in rows.tokens]].tolist() == [5]
    assert table.notes == ("data.txt: 1 of 76 sequences are longer than data.max_tokens (4) and are cut",)


def test_a_share_is_drawn_by_group(tmp_path):
    path = written(tmp_path, "\n".join(WORDS * 2))
    table = table_of(path, share=0.5, seed=3)
    assert len(texts_of(table)) == 2 * len(set(texts_of(table)))
    assert 20 < len(set(texts_of(table))) < 55


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("alone", "no sequence is in the split select: 1 sequences, 1 distinct sequences; allowed: more of them, or "
                  "other data.select_share, data.report_share, data.split_seed"),
        ("same\n" * 500, "no sequence is in the split select: 500 sequences, 1 distinct sequences; allowed: more of"),
        ("\n\n\n", "data.txt holds no sequence; left out were 3 empty ones"),
    ],
)  # fmt: skip
def test_too_little_is_refused(tmp_path, content, said):
    with pytest.raises(StudyError) as error:
        table_of(written(tmp_path, content))
    assert said in str(error.value)


def test_a_column_of_names_is_no_factor(tmp_path):
    content = "text\tid\n" + "".join(f"{word}\t{i}\n" for i, word in enumerate(WORDS))
    with pytest.raises(StudyError, match="factor id has 75 levels over 75 sequences; a factor groups sequences"):
        table_of(written(tmp_path, content, "d.tsv"), factors={"id": "id"})


def test_a_factor_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "MOST_LEVELS", 20)
    content = "text\tid\n" + "".join(f"{word}\t{i}\n" for i, word in enumerate(WORDS))
    with pytest.raises(StudyError, match="factor id has more than 20 levels; a factor groups sequences"):
        table_of(written(tmp_path, content, "d.tsv"), factors={"id": "id"})


def test_a_file_that_has_changed_is_refused(tmp_path):
    path = written(tmp_path, "\n".join(WORDS))
    with pytest.raises(StudyError, match="has changed since the study was planned: its SHA-256 is "):
        table_of(path, sha256="0" * 64)


def test_parts_make_the_same_table_as_the_whole(tmp_path, monkeypatch):
    words = [word * n for n in range(1, 6) for word in WORDS]
    whole = table_of(written(tmp_path, "\n".join(words)))
    (tmp_path / "b").mkdir()
    monkeypatch.setattr(table_module, "PART", 7)
    monkeypatch.setattr(spool, "PART", 5)
    parts = table_of(written(tmp_path / "b", "\n".join(words)))
    for name in ("tokens", "lengths", "units"):
        assert np.array_equal(getattr(whole.sequences, name), getattr(parts.sequences, name))
    assert not [path for path in (tmp_path / "tables").iterdir() if path.name.startswith(".spool")]


def test_a_table_describes_itself(tmp_path):
    table_of(written(tmp_path, "\n".join(WORDS)))
    meta = json.loads((tmp_path / "tables" / "data" / "meta.json").read_text())
    assert set(meta["files"]) == {"tokens.npy", "lengths.npy", "mask.npy", "units.npy", "factors.npy"}
    assert meta["vocabulary"] == len(meta["texts"])
