"""A study over files: found beside the study, known by their content, each with a table and a reference of its own."""

import pytest
from pydantic import ValidationError

from ablate.errors import SpecError
from ablate.plan.planning import make_plan
from ablate.spec.loading import load_study
from ablate.workloads import find_workload
from ablate.workloads.contract import Trial
from ablate.workloads.sequence_file.config import Config, Data, data_fingerprint, prepared_key, sequences_key
from ablate.workloads.sequence_file.workload import prepare, scales, train
from tests.workloads.conftest import EVALUATION, TINY
from tests.workloads.sequence_files import HALF, WORDS, written

STUDY = """\
study: own
workload: sequence_file
baseline:
  data: {path: words.txt}
factors:
  kl.beta: [0.5, 1.0]
designs: [one_at_a_time: kl.beta]
seeds: {count: 2}
metrics: {primary: {name: eval/neg_elbo_per_token}}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a study and its file; the current folder is another one."""
    (tmp_path / "studies").mkdir()
    (tmp_path / "elsewhere").mkdir()
    written(tmp_path / "studies", "\n".join(WORDS), "words.txt")
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def plan_of(place, *edits, name="study.yaml", files=None):
    text = STUDY
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = place / "studies" / name
    path.write_text(text)
    spec = load_study(path, workload_lookup=find_workload, files=files)
    return make_plan(spec, find_workload("sequence_file"))


def ids(plan):
    return [trial.trial_id for trial in plan.trials]


def refused(place, *edits):
    with pytest.raises(SpecError) as error:
        plan_of(place, *edits)
    return str(error.value).replace(str(place), "PLACE")


def test_a_file_is_found_beside_the_study_then_in_the_current_folder(place):
    (arm, _) = plan_of(place).arms
    assert arm.config["data"]["path"] == str(place / "studies" / "words.txt")
    (place / "studies" / "words.txt").rename(place / "elsewhere" / "words.txt")
    (arm, _) = plan_of(place).arms
    assert arm.config["data"]["path"] == str(place / "elsewhere" / "words.txt")


def test_a_missing_file_is_said_before_anything_starts(place):
    assert refused(place, ("words.txt", "wrods.txt")) == (
        "PLACE/studies/study.yaml:4:16: baseline.data.path: got 'wrods.txt': there is no such file; "
        "looked in PLACE/studies and PLACE/elsewhere"
    )
    assert refused(place, ("kl.beta: [0.5, 1.0]", "data.path: [words.txt, b.txt]"), ("kl.beta]", "data.path]")) == (
        "PLACE/studies/study.yaml:6:14: factors.data.path: got 'b.txt': there is no such file; "
        "looked in PLACE/studies and PLACE/elsewhere"
    )
    assert refused(place, ("words.txt", ".")).endswith("cannot be read: Is a directory")
    assert "there is no such file" in refused(place, ("words.txt", "x" * 300))


def test_a_file_that_is_not_what_the_study_says_is_said_before_anything_starts(place):
    table = written(place / "studies", "form\tlemma\nhuset\thus\n", "words.tsv")
    assert refused(place, ("words.txt", "words.tsv")) == (
        "PLACE/studies/study.yaml:4:16: baseline.data.path: PLACE/studies/words.tsv: data.text: no column 'text'; "
        "columns: 'form', 'lemma'"
    )
    table.write_bytes(b"")
    assert refused(place, ("words.txt", "words.tsv")).endswith("PLACE/studies/words.tsv is empty")


def test_the_content_is_in_the_identity_and_the_name_is_not(place):
    before = ids(plan_of(place))
    (place / "studies" / "words.txt").rename(place / "studies" / "other.txt")
    assert ids(plan_of(place, ("words.txt", "other.txt"))) == before
    assert ids(plan_of(place, ("words.txt", f"{place}/studies/other.txt"))) == before
    written(place / "studies", "\n".join([*WORDS, "neu"]), "other.txt")
    assert not set(ids(plan_of(place, ("words.txt", "other.txt")))) & set(before)


def test_a_pinned_content_is_held_against_the_file(place):
    plan = plan_of(place)
    digest = plan.files["words.txt"]
    assert ids(plan_of(place, ("words.txt", f"words.txt, sha256: {digest}"))) == ids(plan)
    assert refused(place, ("words.txt", f"words.txt, sha256: {'ab' * 32}")).endswith(
        f"baseline.data.sha256: got {'ab' * 32}; PLACE/studies/words.txt has the SHA-256 {digest}"
    )


def test_a_study_is_read_back_without_its_file(place):
    plan = plan_of(place)
    (place / "studies" / "words.txt").unlink()
    again = plan_of(place, files=plan.files)
    assert ids(again) == ids(plan)
    assert again.files == plan.files


def test_several_files_as_a_factor(place):
    written(place / "studies", "\n".join(word + "e" for word in WORDS), "b.txt")
    plan = plan_of(place, ("kl.beta: [0.5, 1.0]", "data.path: [words.txt, b.txt]"), ("kl.beta]", "data.path]"))
    assert [arm.label for arm in plan.arms] == ["baseline", "path=b.txt"]
    assert plan.arms[1].factors == {"data.path": "b.txt"}
    assert len({prepared_key(arm.config) for arm in plan.arms}) == 2
    assert len(set(ids(plan))) == 4
    assert set(plan.files) == {"words.txt", "b.txt"}


def test_what_decides_the_table(tmp_path):
    written(tmp_path, "\n".join(WORDS))
    default = Config(data=Data(path=str(tmp_path / "data.txt"))).model_dump(mode="json")

    def changed(section, **values):
        return default | {section: default[section] | values}

    (tmp_path / "copy.csv").write_bytes((tmp_path / "data.txt").read_bytes())
    same = changed("data", path=str(tmp_path / "copy.csv"), format="txt")
    assert data_fingerprint(same) == data_fingerprint(default)
    assert data_fingerprint(changed("data", seed=1)) == data_fingerprint(default)  # draws nothing while share is 1
    assert data_fingerprint(changed("data", seed=1, share=0.5)) != data_fingerprint(changed("data", share=0.5))
    for values in ({"split_seed": 1}, {"tokenizer": "bytes"}, {"max_tokens": 5}, {"select_share": 0.2}):
        assert data_fingerprint(changed("data", **values)) != data_fingerprint(default)
    other = changed("reference", seed=1)
    assert sequences_key(other) == sequences_key(default)
    assert prepared_key(other) != prepared_key(default)
    assert prepared_key(changed("model", width=64)) == prepared_key(default)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"select_share": 0.5, "report_share": 0.5}, "select_share 0.5 and report_share 0.5 leave nothing to train on"),
        ({"tokenizer": "file"}, "tokenizer: file and tokenizer_file are given together"),
        ({"tokenizer_file": "a.json"}, "tokenizer: file and tokenizer_file are given together"),
        ({"tokenizer": "bpe", "vocabulary_size": 100}, "vocabulary_size 100 is below 259, what bpe starts from"),
        ({"text": 0}, "greater than or equal to 1"),
        ({"sha256": "abc"}, "pattern"),
        ({"factors": {"a b": 1}}, "pattern"),
        ({"features": {"column": 3, "factors": {}}}, "at least 1 item"),
        ({"features": {"column": 3, "factors": {"n": ["SG"]}}}, "at least 2 items"),
        (
            {"factors": {"n": 1}, "features": {"column": 3, "factors": {"n": ["SG", "PL"]}}},
            "factor n stands both under factors and under features",
        ),
    ],
)
def test_what_is_wrong_is_refused(data, message):
    with pytest.raises(ValidationError) as error:
        Data.model_validate(data)
    assert message in str(error.value)


@pytest.mark.parametrize("latent", ["continuous", "discrete"])
def test_a_trial_on_a_file_reports_what_the_workload_says(tmp_path, latent):
    content = "".join(f"{word}\t{'ab'[i % 2]}\n" for i, word in enumerate(WORDS))
    path = written(tmp_path, content, "words.tsv")
    data = {"path": str(path), "header": False, "text": 1, "factors": {"parity": 2}, **HALF}
    config = Config.model_validate({**TINY, "latent": latent, "data": data}).model_dump(mode="json")
    made = prepare(config, tmp_path / "shared")
    assert made.facts["train_examples"] == 35
    assert made.facts["sequences"] == 75
    final = train(config, Trial(seed=0, shared_dir=tmp_path / "shared", evaluation=EVALUATION))
    declared = find_workload("sequence_file").metrics
    assert set(final) <= declared
    assert {name for name in declared - set(final) if name.startswith(("eval/", "select/"))} == set()
    assert final["eval/zfree_nll_per_token"] == made.facts["report_reference_nll_per_token"]
    (scale,) = scales([config], config, tmp_path / "shared")
    assert scale.beta_eff > 0
    assert train(config, Trial(seed=0, evaluation=EVALUATION))["eval/elbo"] == final["eval/elbo"]
