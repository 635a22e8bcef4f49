"""Whatever a file holds, it is either a study or a SpecError that says where."""

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.errors import SpecError
from ablate.plan.planning import make_plan
from ablate.spec.dumping import dump_document
from ablate.spec.loading import load_study
from tests.spec.example import FREE_STUDY, edited, lookup

RICH = edited(
    ("levels: 4", 'levels: 4, when: "reconstruction.raw_weight > 0"'),
    (
        "designs:",
        "together: [[reconstruction.raw_weight, reconstruction.distribution_normalized_weight]]\n"
        'constraints: ["active(reconstruction.*_weight) >= 1"]\n'
        "seeds: {count: 2, start: 1}\n"
        "controls: {aa: 1, rescaled: true, match_scale: true}\n"
        "run: {resources: {cpu: 1}}\n"
        "designs:\n  - grid: [kl.beta, reconstruction.token_aggregation]\n  - add_one_in: reconstruction.*_weight\n"
        "  - factorial: {over: reconstruction.*_weight, resolution: III}\n"
        "  - leave_group_out: [['*.raw_weight'], ['*.t*_weight']]",
    ),
)
NOISE = "\n\t :-,.[]{}#&*!|>'\"%@`ax01\0\x85é\U0001f600"
NUMBERS = [0, 1, -1, 10**30, 1e308, 0.5]
WORDS = ["", "0", "1x", "-2x", "*", "kl.*", "kl.beta", "reconstruction.raw_weight", "a" * 300, "last", "auto", "none"]
WORDS += ["(((", "kl.beta > 0", "latent == 'discrete'"]
KEYS = ["kl.schedule", "x", "values", "min", "when", "data", "rate", ""]
EXAMPLES = [RICH, FREE_STUDY]
FUZZ = settings(
    max_examples=70, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def problems_of(folder, text):
    file = folder.write(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    try:
        make_plan(
            load_study(file, workload_lookup=lookup), lookup("free" if "workload: free" in str(text) else "typed")
        )
    except SpecError as error:
        return error.problems
    return None


def taken_or_refused(folder, text):
    problems = problems_of(folder, text)
    assert problems is None or problems
    for problem in problems or ():
        assert problem.file == "s.yaml"
        assert problem.message
        assert "\n" not in str(problem)


damaged_texts = given(
    st.sampled_from(EXAMPLES),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 12), st.text(alphabet=NOISE, max_size=4)),
        min_size=1,
        max_size=4,
    ),
)


@FUZZ
@damaged_texts
def test_text_with_holes_and_noise(folder, text, edits):
    for place, length, noise in edits:
        start = int(place * len(text))
        text = text[:start] + noise + text[start + length :]
    taken_or_refused(folder, text)


def paths_of(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_of(item, (*path, key))


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(NUMBERS),
    st.sampled_from(WORDS),
    st.sampled_from([[], {}, [[]], [{}], {"a": 1}, [None]]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.sampled_from(["kl.beta", "*", 1, None, 0.5, {}]), max_size=3),
)


edited_documents = given(st.sampled_from(EXAMPLES), st.data())


@FUZZ
@edited_documents
def test_documents_with_odd_values(folder, text, data):
    document = copy.deepcopy(load_study(folder.write(text), workload_lookup=lookup).document)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in paths_of(document) if path]))
        parent = document
        for part in path[:-1]:
            parent = parent[part]
        match data.draw(st.sampled_from(["replace", "replace", "remove", "add"])):
            case "replace":
                parent[path[-1]] = copy.deepcopy(data.draw(odd))
            case "remove":
                del parent[path[-1]]
            case "add" if isinstance(parent, dict):
                parent[
                    data.draw(st.sampled_from(["kl.schedule", "x", "values", "min", "when", "data", "rate", ""]))
                ] = copy.deepcopy(data.draw(odd))
            case _:
                parent.append(copy.deepcopy(data.draw(odd))) if isinstance(parent, list) else None
        if not document:
            break
    taken_or_refused(folder, dump_document(document))


any_bytes = given(st.binary(max_size=200))


@FUZZ
@any_bytes
def test_bytes(folder, content):
    taken_or_refused(folder, content)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("test", "files", "count"),
    [
        (test_text_with_holes_and_noise, damaged_texts, 8_000),
        (test_documents_with_odd_values, edited_documents, 10_000),
        (test_bytes, any_bytes, 2_000),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_twenty_thousand_files(folder, test, files, count):
    settings(FUZZ, max_examples=count)(files(test.hypothesis.inner_test))(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"a: &a [1]\n" * 5_000,
        b"? " * 300_000,
        b"- " * 300_000,
        b"a: " + b"x " * 400_000,
        b"'" + b"\n" * 500_000 + b"'",
        b"{" * 99 + b"}" * 99,
        b"a: [" + b"1, " * 20_000 + b"]\n",
        b"# c\n" * 50_000,
        b"%YAML 1.1\n---\na: on\n",
        b"a: |9\n x\n",
        b"? [a, b]\n: c\n",
        b"&a &b c\n",
        b"a: <<\n<<: {a: 1}\n",
    ],
    ids=lambda content: repr(content[:12]),
)
def test_hostile_files(folder, content):
    taken_or_refused(folder, content)
