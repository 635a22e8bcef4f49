"""The README names everything there is, and what it shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.cli import app
from ablate.plan.designs import DESIGNS
from ablate.spec.loading import load_study
from ablate.workloads import find_workload
from losses.reconstruction import TERMS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def marked(name):
    [text] = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end {name} -->", README, re.DOTALL)
    return text


def test_it_is_short():
    assert README.count("\n") < 200


@pytest.mark.parametrize("term", TERMS)
def test_every_term_has_a_row(term):
    assert re.search(rf"^\| `{re.escape(str(term))}` \| `\w+_weight` \| .+ \|$", README, re.MULTILINE)


@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_has_a_row(design):
    assert re.search(rf"^\| `{design}` \| .+ \|$", README, re.MULTILINE)


@pytest.mark.parametrize("command", [command.name or command.callback.__name__ for command in app.registered_commands])
def test_every_command_has_a_row(command):
    assert re.search(rf"^\| `ablate {command}\b.*` \| .+ \|$", README, re.MULTILINE)


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_every_link_leads_somewhere(target):
    assert (ROOT / target).exists()


@pytest.mark.parametrize("target", re.findall(r"^\$ make (\w+)", README, re.MULTILINE))
def test_every_make_target_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("code", blocks("python"))
def test_the_python_runs(code, tmp_path):
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


@pytest.fixture
def study_file(tmp_path):
    [text] = blocks("yaml")
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return path


def test_the_study_is_valid(study_file):
    spec = load_study(study_file, workload_lookup=find_workload)
    assert spec.study == "which-terms-matter"


def test_the_typo_gets_the_message_that_is_shown(study_file):
    study_file.write_text(study_file.read_text().replace("{beta: 1.0}", "{bta: 1.0}"))
    command = [Path(sys.executable).parent / "ablate", "validate", "study.yaml"]
    done = subprocess.run(command, cwd=study_file.parent, capture_output=True, text=True)
    assert done.returncode == 2
    assert marked("typo") == f"```console\n$ ablate validate study.yaml\n{done.stderr}```\n"


def test_the_output_of_the_demo_is_shown():
    assert "Droppable" in marked("demo")
