"""Files as users have them: every format gives the same rows, and what is wrong with one is said."""

import gzip
import json
import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.errors import StudyError
from ablate.workloads.sequence_file.config import Data
from ablate.workloads.sequence_file.reading import read_records
from tests.workloads.sequence_files import WORDS, table_of, texts_of, written

ROWS = [("hus", "huset", "DEF"), ("kat", "kattens", "GEN,DEF"), ("ø", "øers", "GEN"), ("æg", 'æg "to"', "")]
COLUMNS = {"text": "form", "group": "lemma", "factors": {"tag": "tags"}}
NAMES = ("lemma", "form", "tags")


def read(path, **keys):
    return [tuple(record) for record in read_records(Data.model_validate({"path": str(path), **keys}))]


def parquet(folder, columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), folder / "data.parquet")
    return folder / "data.parquet"


def as_csv(rows):
    return "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in [NAMES, *rows])


def as_json(rows):
    return "".join(json.dumps(dict(zip(NAMES, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)


@pytest.mark.parametrize("name", ["data.csv", "data.tsv.gz", "data.jsonl", "data.jsonl.gz", "data.parquet"])
def test_every_format_gives_the_same_rows(tmp_path, name):
    kind = name.split(".")[1]
    if kind == "parquet":
        path = parquet(tmp_path, {column: [row[place] for row in ROWS] for place, column in enumerate(NAMES)})
    else:
        tabs = "".join("\t".join(row) + "\n" for row in [NAMES, *ROWS])
        path = written(tmp_path, {"csv": as_csv(ROWS), "tsv": tabs, "jsonl": as_json(ROWS)}[kind], name)
    first = 1 if kind in ("jsonl", "parquet") else 2
    expected = [(place, form, lemma, (tag,)) for place, (lemma, form, tag) in enumerate(ROWS, start=first)]
    assert read(path, **COLUMNS) == expected


def test_columns_by_number_and_tags_of_a_bundle(tmp_path):
    path = written(tmp_path, "69'er\t69'eren\tN;DEF;NOM;SG\nstor\tstørst\tADJ;SPRL\n", "data.tsv")
    number, case = ["SG", "PL"], ["NOM", "GEN"]
    features = {"column": 3, "split": ";", "factors": {"number": number, "case": case}}
    assert read(path, header=False, text=2, group=1, features=features) == [
        (1, "69'eren", "69'er", ("SG", "NOM")),
        (2, "størst", "stor", ("", "")),
    ]


def test_a_txt_file_has_a_sequence_a_line(tmp_path):
    assert read(written(tmp_path, "en\n\nto")) == [(1, "en", "en", ()), (2, "", "", ()), (3, "to", "to", ())]


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_a_sequence(tmp_path):
    assert [text for _, text, *_ in read(written(tmp_path, b"\xef\xbb\xbfen\r\nto\r\n"))] == ["en", "to"]
    path = written(tmp_path, b'\xef\xbb\xbftext,x\r\n"a\r\nb",1\r\n', "data.csv")
    assert [text for _, text, *_ in read(path)] == ["a\r\nb"]


def test_line_separators_of_unicode_are_characters(tmp_path):
    assert [text for _, text, *_ in read(written(tmp_path, "a\u2028b\x0bc\x85d\n"))] == ["a\u2028b\x0bc\x85d"]


def test_equivalent_spellings_are_one(tmp_path):
    composed = unicodedata.normalize("NFC", "é")
    assert [text for _, text, *_ in read(written(tmp_path, "e\u0301\n" + composed))] == [composed, composed]


def test_typed_values_are_text(tmp_path):
    path = written(tmp_path, '{"text": 12, "f": true}\n{"text": null, "f": null}\n', "data.jsonl")
    assert read(path, factors={"f": "f"}) == [(1, "12", "12", ("true",)), (2, "", "", ("",))]


BAD = {
    "empty": ("data.txt", b"", {}, "{path} is empty"),
    "not utf-8": (
        "data.txt", "åben\n".encode() + "ærø".encode("latin1"), {},
        "{path}:2: not UTF-8: byte 0xe6 at byte 1 of the line; "
        "convert it: iconv -f latin1 -t utf-8, or whatever it is in",
    ),
    "utf-16": (
        "data.txt", "en\nto".encode("utf-16"), {},
        "{path}:1: the file is UTF-16; allowed: UTF-8; convert it: iconv -f utf-16 -t utf-8",
    ),
    "nul": ("data.txt", b"en\nt\0o", {}, "{path}:2: a NUL byte at byte 2 of the line; allowed: text in UTF-8"),
    "nul in json": ("data.jsonl", rb'{"text": "a\u0000b"}', {}, "{path}:1: a NUL character in the sequence"),
    "ragged": ("data.tsv", b"text\tx\na\t1\nb\nc\t2", {}, "{path}:3: 1 columns; the first row has 2"),
    "ragged csv": ("data.csv", b"text,x\na,1,2\n", {}, "{path}:2: 3 columns; the first row has 2"),
    "open quote": (
        "data.csv", b'text,x\n"a,1\nb,2\n', {}, "{path}:3: unexpected end of data; is a quote not closed?",
    ),
    "only a header": ("data.csv", b"", {}, "{path} is empty"),
    "blank": ("data.csv", b"\n\n", {}, "{path} holds no row"),
    "no such column": (
        "data.csv", b"txt,x\na,1", {},
        "{path}: data.text: no column 'text'; did you mean 'txt'?; columns: 'txt', 'x'",
    ),
    "no such group": (
        "data.csv", b"text,x\na,1", {"group": "lemma"},
        "{path}: data.group: no column 'lemma'; columns: 'text', 'x'",
    ),
    "no such factor": (
        "data.csv", b"text,x\na,1", {"factors": {"tone": "y"}},
        "{path}: data.factors.tone: no column 'y'; columns: 'text', 'x'",
    ),
    "column beyond": (
        "data.tsv", b"a\tb", {"header": False, "text": 3}, "{path}: data.text: got column 3; it has 2",
    ),
    "column twice": (
        "data.csv", b"text,text\na,1", {}, "{path}: data.text: two columns 'text'; columns: 'text', 'text'",
    ),
    "group of txt": (
        "data.txt", b"en", {"group": 2}, "{path}: data.group: got column 2; it has 1",
    ),
    "empty group": (
        "data.tsv", b"text\tg\na\t\n", {"group": "g"}, "{path}:2: the group column is empty",
    ),
    "two levels": (
        "data.tsv", b"a\tSG;PL",
        {"header": False, "text": 1, "features": {"column": 2, "factors": {"n": ["SG", "PL"]}}},
        "{path}:1: 'SG;PL' has SG and PL; factor n takes one of them",
    ),
    "not json": (
        "data.jsonl", b'{"text": "a"}\n{"text": \n', {},
        "{path}:2: not JSON: Expecting value: line 1 column 9 (char 8)",
    ),
    "no object": ("data.jsonl", b"[1]", {}, "{path}:1: got list; allowed: an object on each line"),
    "no key": ("data.jsonl", b'{"Text": "a"}', {}, "{path}:1: no key 'text'; did you mean 'Text'?"),
    "number in json": (
        "data.jsonl", b'{"text": "a"}', {"text": 1},
        "{path}: got column 1; allowed: a key by its name, as lines have no order",
    ),
    "no parquet": (
        "data.parquet", b"text" * 9, {},
        "{path} cannot be read as parquet: Parquet magic bytes not found in footer. "
        "Either the file is corrupted or this is not a parquet file.",
    ),
    "unknown ending": (
        "data.docx", b"PK", {},
        "{path}: its ending is none of .txt, .csv, .tsv, .jsonl, .ndjson, .parquet, each also with .gz; "
        "say data.format",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_with_a_file_is_said(tmp_path, case):
    name, content, keys, message = BAD[case]
    path = written(tmp_path, content, name)
    with pytest.raises(StudyError) as error:
        read(path, **keys)
    assert str(error.value) == message.format(path=path)


def test_a_file_that_is_missing_or_no_file_is_said(tmp_path):
    with pytest.raises(StudyError, match=r"nowhere\.txt cannot be read: No such file or directory"):
        read(tmp_path / "nowhere.txt")
    with pytest.raises(StudyError, match="cannot be read: Is a directory"):
        read(tmp_path, format="txt")


def test_a_damaged_archive_is_said(tmp_path):
    whole = gzip.compress("\n".join(WORDS).encode())
    for content, said in ((whole[:-9], "Compressed file ended before"), (b"en\nto\n", "Not a gzipped file")):
        (tmp_path / "data.txt.gz").write_bytes(content)
        with pytest.raises(StudyError, match=rf"data\.txt\.gz cannot be read: {said}"):
            read(tmp_path / "data.txt.gz")


def test_half_of_a_surrogate_pair_is_said(tmp_path):
    path = written(tmp_path, '{"text": "a"}\n{"text": "\\ud800"}\n', "data.jsonl")
    with pytest.raises(StudyError, match=r"data\.jsonl:2: half of a surrogate pair; allowed: whole characters"):
        table_of(path)


def test_a_line_of_five_megabytes_is_a_sequence_and_is_cut(tmp_path):
    path = written(tmp_path, "\n".join([*WORDS, "ab" * 2_500_000]))
    table = table_of(path, max_tokens=7)
    assert table.sequences.tokens.shape == (len(WORDS) + 1, 9)
    assert "abababa" in texts_of(table)
    assert table.facts["cut_sequences"] == 1


def test_an_endless_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ablate.workloads.sequence_file.reading.LONGEST_LINE", 2**20)
    with pytest.raises(StudyError, match=r"data\.txt:2: a line of more than 1 MiB"):
        read(written(tmp_path, "en\n" + "a" * 2**21))


MARKS = [*"aøé\u0301\t,;\"'\n\r\0\ufeff\u2028\\{}:[ ", "👩‍👩‍👧", "\r\n", '"text"', "null", "1e999", "\\ud800", "text"]
CONTENT = st.one_of(
    st.lists(st.sampled_from(MARKS), max_size=30).map(lambda parts: "".join(parts).encode()), st.binary(max_size=60)
)


@pytest.mark.parametrize("name", ["data.txt", "data.csv", "data.tsv", "data.jsonl", "data.txt.gz", "data.parquet"])
@given(content=CONTENT)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_whatever_is_in_a_file_gives_rows_or_a_message(name, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        column = "text" if name == "data.jsonl" else 1
        try:
            found = table_of(path, header=False, text=column)
        except StudyError as error:
            said = str(error)
        else:
            said = f"{path}: {len(found.sequences.tokens)} rows"
        assert said.startswith(str(path))
