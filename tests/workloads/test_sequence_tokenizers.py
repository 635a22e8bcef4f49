"""Bytes, characters, BPE and a tokenizer of one's own."""

import json
import unicodedata
from collections import Counter

import pytest

from ablate.errors import StudyError
from ablate.workloads.sequence_file.tokenizers import GRAPHEME, graphemes, of_bytes, of_characters, train_bpe
from ablate.workloads.sequence_vae.data import BOS, EOS, PAD
from tests.workloads.sequence_files import WORDS, table_of, texts_of, written

SCRIPTS = {
    "combining": ("n\u0303\u0320o", ["n\u0303\u0320", "o"]),
    "right to left, with points": ("שָׁלוֹם", ["שָׁ", "ל", "וֹ", "ם"]),
    "arabic with a mark": ("مَرحبا", ["مَ", "ر", "ح", "ب", "ا"]),
    "devanagari": ("नमस्ते", ["न", "म", "स्ते"]),
    "joined emoji": ("👩‍👩‍👧é", ["👩‍👩‍👧", "é"]),
    "flag and skin": ("🇩🇰👍🏽", ["🇩🇰", "👍🏽"]),
    "hangul": ("한국", ["한", "국"]),
    "line end": ("a\r\nb", ["a", "\r\n", "b"]),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_a_character_is_what_a_reader_takes_for_one(case):
    text, parts = SCRIPTS[case]
    assert list(graphemes(text)) == parts
    tokenizer = of_characters(Counter(parts), 100)
    (ids,) = tokenizer.encode([text], 10)
    assert [tokenizer.texts[token] for token in ids] == parts


def test_scripts_go_through_a_file(tmp_path):
    texts = [text for text, _ in SCRIPTS.values() if "\n" not in text]
    table = table_of(written(tmp_path, "\n".join([*WORDS, *texts])), tokenizer="bytes")
    raw = {bytes(token - 3 for token in row if token > EOS).decode() for row in table.sequences.tokens.tolist()}
    assert raw == {unicodedata.normalize("NFC", text) for text in [*WORDS, *texts]}


def test_bytes_hold_any_text():
    (ids,) = of_bytes().encode(["aø\U0001f600"], 100)
    assert bytes(token - 3 for token in ids).decode() == "aø\U0001f600"
    assert [of_bytes().texts[token] for token in ids[:3]] == ["a", "<0xC3>", "<0xB8>"]
    assert [len(ids) for ids in of_bytes().encode(["øøøø", "abc"], 2)] == [3, 3]


def test_rare_characters_are_one_token():
    tokenizer = of_characters(Counter("aaabbc"), 6)
    assert tokenizer.texts == ("<pad>", "<bos>", "<eos>", "<unknown>", "a", "b")
    assert list(tokenizer.encode(["abcd"], 9)) == [[4, 5, 3, 3]]


def test_characters_are_those_of_the_training_split(tmp_path):
    words = [*WORDS, *(f"{word}{mark}" for word, mark in zip(WORDS, "!?#%&/()=+*'^~<>|@$£", strict=False))]
    table = table_of(written(tmp_path, "\n".join(words)))
    train = texts_of(table)[slice(*table.bounds["train"])]
    assert set("".join(train)) == set(table.texts[4:])
    assert table.facts["unknown_tokens"] == sum(
        len(set(row.tolist()) & {3}) for row in table.sequences.tokens
    ) > 0  # fmt: skip
    assert f"{table.facts['unknown_tokens']} of " in table.notes[0]
    assert table.notes[0].endswith("tokens are not in the vocabulary")


def test_bpe_is_trained_on_the_training_split_and_loses_nothing(tmp_path):
    words = [a + b for a in WORDS for b in WORDS[::9]]
    path = written(tmp_path, "\n".join(words))
    table = table_of(path, tokenizer="bpe", vocabulary_size=300)
    assert sorted(texts_of(table)) == sorted(words)
    assert len(table.texts) == 300
    assert table.sequences.tokens.shape[1] < max(map(len, words)) + 2  # pairs were merged
    again = train_bpe(texts_of(table)[slice(*table.bounds["train"])], 300)
    assert again.texts == table.texts
    (tmp_path / "b").mkdir()
    saved = tmp_path / "tables" / "data" / "tokenizer.json"
    (tmp_path / "b" / "data.txt").write_bytes(path.read_bytes())
    reused = table_of(tmp_path / "b" / "data.txt", tokenizer="file", tokenizer_file=str(saved))
    assert texts_of(reused) == texts_of(table)
    assert {PAD, BOS, EOS} <= set(reused.sequences.tokens.reshape(-1).tolist())


def test_a_tokenizer_of_ones_own(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = Tokenizer(models.WordLevel({"<unk>": 0, "to": 1, "en": 2}, unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    model.enable_truncation(1)
    model.enable_padding(length=9)
    model.save(str(tmp_path / "own.json"))
    lines = [*(f"en {word} to" for word in WORDS), "\u2003"]  # a wide space, of which this tokenizer makes nothing
    own = {"tokenizer": "file", "tokenizer_file": str(tmp_path / "own.json")}
    table = table_of(written(tmp_path, "\n".join(lines)), **own)
    rows = table.sequences.tokens.tolist()
    assert rows[0] == [BOS, 5, 3, 4, EOS]
    assert rows.count([BOS, EOS, PAD, PAD, PAD]) == 1
    assert table.notes == ("data.txt: 74 of 225 tokens are not in the vocabulary",)


@pytest.mark.parametrize("content", [b"{}", b"\xff\xfe", b"not json", None])
def test_a_file_that_is_no_tokenizer_is_said(tmp_path, content):
    if content is not None:
        (tmp_path / "own.json").write_bytes(content)
    with pytest.raises(StudyError, match=r"own\.json (cannot be read|is no tokenizer\.json of Hugging Face)"):
        table_of(written(tmp_path, "\n".join(WORDS)), tokenizer="file", tokenizer_file=str(tmp_path / "own.json"))


def test_the_saved_tokenizer_is_that_of_the_library(tmp_path):
    table_of(written(tmp_path, "\n".join(WORDS)), tokenizer="bpe", vocabulary_size=262)
    saved = json.loads((tmp_path / "tables" / "data" / "tokenizer.json").read_text())
    assert saved["model"]["type"] == "BPE"


def test_code_points_before_the_first_combining_one_stand_alone():
    plain = "".join(chr(point) for point in range(0x300) if point != 0x0D)
    assert list(graphemes(plain)) == [found.group() for found in GRAPHEME.finditer(plain)] == list(plain)
