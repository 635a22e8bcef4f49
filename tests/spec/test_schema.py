import json
from pathlib import Path

import jsonschema
import pytest

from ablate.spec.file_model import StudyFile
from ablate.spec.schema import study_schema
from ablate.spec.template import study_template
from ablate.workloads import BUILT_IN, find_workload
from tests.spec.example import FREE, FREE_STUDY, STUDY, TYPED, edited

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(study_schema())


def test_it_is_a_json_schema():
    jsonschema.Draft202012Validator.check_schema(study_schema())
    assert set(study_schema()["properties"]) == set(StudyFile.model_fields)


def test_an_editor_has_a_word_on_every_key():
    schema = study_schema()
    sections = {"": schema, **schema["$defs"]}
    keys = [
        (name, key, value) for name, section in sections.items() for key, value in section.get("properties", {}).items()
    ]
    assert len(keys) > 60
    assert [
        f"{name}.{key}" for name, key, value in keys if "description" not in value and "$ref" not in json.dumps(value)
    ] == []


@pytest.mark.parametrize("text", [STUDY, FREE_STUDY])
def test_good_files_conform(folder, text):
    assert [error.message for error in VALIDATOR.iter_errors(folder.load(text).document)] == []


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.name)
def test_the_studies_conform(path):
    from ablate.spec.loading import load_study

    spec = load_study(path, workload_lookup=find_workload)
    assert [error.message for error in VALIDATOR.iter_errors(spec.document)] == []


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"study": "A b"}, ["study"]),
        ({"seeds": {"count": 0}}, ["seeds", "count"]),
        ({"seed": 1}, []),
        ({"designs": [{"grid": "a", "leave_one_out": "b"}]}, ["designs", 0]),
        ({"version": 2}, ["version"]),
    ],
)
def test_bad_files_do_not(folder, change, where):
    document = {**folder.load(STUDY).document, **change}
    assert [list(error.absolute_path) for error in VALIDATOR.iter_errors(document)] == [where]


def test_a_file_that_extends_another_needs_no_key():
    assert list(VALIDATOR.iter_errors({"extends": "base.yaml"})) == []
    assert len(list(VALIDATOR.iter_errors({"study": "a"}))) == 4


@pytest.mark.parametrize("workload", [TYPED, FREE, None])
def test_the_file_of_init_is_sound(folder, workload):
    text = study_template(workload)
    if workload is None:
        text = edited(("workload: synthetic_sequences", "workload: typed"), text=text)
    text = text.replace(", select_examples: 256, report_examples: 256", "").replace(
        "reference: {steps: 400}", "reference: {seed: 0}"
    )
    spec = folder.load(text)
    assert spec.warnings == ()
    assert list(VALIDATOR.iter_errors(spec.document)) == []
    assert spec.workload == (workload.name if workload else "typed")


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_file_of_init_runs_a_built_in_workload(folder, name):
    from ablate.spec.loading import load_study

    file = folder.write(study_template(find_workload(name)))
    assert load_study(file, workload_lookup=find_workload).workload == name
