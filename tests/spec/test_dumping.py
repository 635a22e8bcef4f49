import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.spec.document import read_document
from ablate.spec.dumping import dump_document, dump_study
from ablate.spec.loading import load_study
from tests.spec.example import FREE_STUDY, STUDY, edited, lookup

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
    st.text(st.characters(codec="utf-8", exclude_characters="\ufeff"), max_size=20),
    st.sampled_from(
        [
            "null",
            "1e-4",
            "on",
            "~",
            "- a",
            "a: b",
            "#",
            "a #b",
            "*x",
            "&x",
            "!t",
            "1_0",
            "0x1",
            "",
            " ",
            "a\nb\n",
            "---",
            "...",
        ]
    ),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
documents = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda key: key != "extends"),
    values,
    min_size=1,
    max_size=5,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(documents)
def test_any_document_is_read_as_it_was_written(tmp_path, document):
    file = tmp_path / "s.yaml"
    file.write_text(dump_document(document), encoding="utf-8", newline="")
    problems = []
    assert repr(read_document(file, [], None, problems).plain()) == repr(document)
    assert problems == []


@pytest.mark.parametrize("text", [STUDY, FREE_STUDY])
def test_a_dumped_study_is_the_same_study(folder, text):
    overrides = ["seeds.count=3", "evaluation.every=1e-1", 'question="on: 1 # no"']
    spec = folder.load(text, overrides=overrides)
    again = load_study(folder.write(dump_study(spec), "again.yaml"), workload_lookup=lookup)
    assert again.document == spec.document
    assert {**vars(again), "source": spec.source, "places": {}} == {**vars(spec), "places": {}}


def test_what_was_extended_is_in_it(folder):
    folder.write(STUDY, "base.yaml")
    spec = folder.load("extends: base.yaml\nseeds: {count: 2}\n")
    (folder.path / "base.yaml").unlink()
    again = load_study(folder.write(dump_study(spec)), workload_lookup=lookup)
    assert (again.seeds.count, again.baseline, again.factors) == (2, spec.baseline, spec.factors)


def test_it_reads_well(folder):
    text = edited(("question: Which reconstruction terms can go?", "question: 'null'"))
    assert dump_study(folder.load(text)).startswith(
        "version: 1\n"
        "study: which-terms\n"
        'question: "null"\n'
        "workload: typed\n"
        "baseline:\n"
        "  reconstruction:\n"
        "    raw_weight: 1.0\n"
    )
