"""Every study that comes with the project."""

from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from ablate.plan.planning import make_plan
from ablate.spec.loading import load_study
from ablate.spec.schema import study_schema
from ablate.workloads import find_workload, import_path

ROOT = Path(__file__).parent.parent
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
FOLDERS = (ROOT / "studies", Path.cwd(), ROOT.parent / "shared" / "data")
"""Where the files that studies name may lie; they are not part of the project."""


@pytest.fixture(params=STUDIES, ids=lambda path: path.stem)
def study(request):
    return request.param


def located(study):
    """Edits that name the study's file where it lies; skips the test where it lies nowhere."""
    spec = load_study(study, workload_lookup=find_workload)
    edits = []
    for path in find_workload(spec.workload).files:
        section, key = path.split(".")
        if (name := spec.baseline[section][key]) is None:
            continue
        found = next((folder / name for folder in FOLDERS if (folder / name).is_file()), None)
        if found is None:
            pytest.skip(f"{name} is not part of the project; the study's header says where it comes from")
        edits.append(f"baseline.{path}={found}")
    return edits


def test_it_plans(study):
    with import_path(study.parent):
        spec = load_study(study, workload_lookup=find_workload, overrides=located(study))
        plan = make_plan(spec, find_workload(spec.workload))
    assert len(plan.trials) == len(plan.arms) * spec.seeds.count
    assert plan.power.can_reject


def test_its_header_says_what_it_asks_and_costs(study):
    head = study.read_text(encoding="utf-8")
    for word in ("# Question:", "# Trials:", "# Minutes:", "# Command:"):
        assert word in head


def test_an_editor_finds_nothing_wrong_with_it(study):
    document = YAML(typ="safe").load(study.read_text(encoding="utf-8"))
    jsonschema.validate(document, study_schema())
