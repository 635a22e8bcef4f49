import ast
import subprocess
import sys
from pathlib import Path

import pytest

import losses

SOURCE = Path(losses.__file__)


def declared_for_type_checkers() -> dict[str, str]:
    """Names imported under TYPE_CHECKING, with the module they come from."""
    return {
        alias.name: (node.module or "").removeprefix("losses.")
        for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("losses.")
        for alias in node.names
    }


def test_type_checkers_and_the_interpreter_see_the_same_names():
    assert declared_for_type_checkers() == losses._HOME
    assert sorted(losses.__all__) == sorted(losses._HOME)
    assert set(losses.__all__) <= set(dir(losses))


@pytest.mark.parametrize("name", losses.__all__)
def test_every_name_resolves(name):
    assert getattr(losses, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'losses' has no attribute 'gausian_kl'"):
        losses.gausian_kl  # noqa: B018


def loaded_after(code: str) -> set[str]:
    probe = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_configuration_loads_no_torch():
    code = "from losses.config import ReconstructionLossConfig\nReconstructionLossConfig(raw_weight=2.0)"
    assert not {"torch", "ablate", "numpy"} & loaded_after(code)
    assert not {"torch", "ablate"} & loaded_after("from losses import ReconstructionLossConfig, BetaSchedule")


def test_the_losses_load_nothing_of_ablate():
    assert "ablate" not in loaded_after("import losses\nfor name in losses.__all__: getattr(losses, name)")
