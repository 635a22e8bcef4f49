"""Who may import whom, and what costs nothing to import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STANDARD = set(sys.stdlib_module_names)

#: What each package may import at any depth of its code, beyond the standard library and itself.
ALLOWED = {
    "losses": {"torch"},
    "ablate/errors.py": set(),
    "ablate/spec": {"pydantic", "pydantic_core", "ruamel", "ablate.errors"},
    "ablate/plan": {"pydantic", "rich", "scipy", "numpy", "ablate.errors", "ablate.spec", "ablate.workloads"},
    "ablate/workloads/contract.py": {"numpy", "pydantic"},
    "ablate/workloads/sequence_file": {
        "numpy", "pyarrow", "pydantic", "regex", "tokenizers", "ablate.errors", "ablate.workloads",
    },
    "ablate/workloads": {"torch", "numpy", "scipy", "sklearn", "pydantic", "losses", "ablate.errors"},
    "ablate/record/lease.py": {"sqlalchemy", "ablate.errors", "ablate.spec", "ablate.record"},
    "ablate/record/sqlite_files.py": {"sqlalchemy", "ablate.record"},
    "ablate/record/optuna_entries.py": {"optuna", "sqlalchemy"},
    "ablate/record/optuna_stores.py": {"optuna", "sqlalchemy", "ablate.errors", "ablate.spec", "ablate.record"},
    "ablate/record/optuna_storage.py": {"optuna", "ablate.errors", "ablate.plan", "ablate.spec", "ablate.record"},
    "ablate/record/optuna_search.py": {"optuna", "ablate.errors", "ablate.plan", "ablate.spec", "ablate.record"},
    "ablate/record/mlflow_tracking.py": {
        "mlflow", "sqlalchemy", "ablate.errors", "ablate.spec", "ablate.record", "ablate.workloads",
    },
    "ablate/record": {"pandas", "ablate.errors", "ablate.plan", "ablate.spec", "ablate.workloads"},
    "ablate/run/ray_tune": {"ray", "ablate.errors", "ablate.run", "ablate.spec", "ablate.workloads"},
    "ablate/run": {
        "rich", "numpy",
        "ablate", "ablate.errors", "ablate.plan", "ablate.record", "ablate.spec", "ablate.workloads",
    },
    "ablate/analysis": {"numpy", "pandas", "scipy", "statsmodels", "sklearn", "optuna", "ablate.errors", "ablate.spec"},
    "ablate/plots": {"matplotlib", "numpy", "pandas", "ablate.analysis"},
    "ablate/report": {
        "jinja2", "markupsafe", "matplotlib", "numpy", "pandas",
        "ablate", "ablate.errors", "ablate.analysis", "ablate.plan", "ablate.plots", "ablate.spec",
    },
}  # fmt: skip
HEAVY = ("torch", "ray", "mlflow", "optuna", "pandas", "matplotlib", "scipy")


def rule_of(path: Path) -> str | None:
    """The most specific entry of ALLOWED for a file."""
    name = path.relative_to(ROOT).as_posix()
    matching = [rule for rule in ALLOWED if name == rule or name.startswith(f"{rule}/")]
    return max(matching, key=len, default=None)


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def package_of(module: str) -> str:
    """`ablate.spec.models` -> `ablate.spec`; `torch.nn` -> `torch`."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "ablate" else parts[0]


SOURCES = sorted([*(ROOT / "losses").rglob("*.py"), *(ROOT / "ablate").rglob("*.py")])


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_follow_the_table(path):
    rule = rule_of(path)
    if rule is None:
        assert path == ROOT / "ablate" / "__init__.py" or path.parent == ROOT / "ablate" / "cli"
        return
    own = rule.removesuffix(".py").replace("/", ".")
    packages = {package_of(module) for module in imported(path)} - STANDARD
    foreign = {name for name in packages if name != package_of(own)}
    assert foreign - ALLOWED[rule] == set(), f"{path.relative_to(ROOT)} imports what {rule} may not"


@pytest.mark.parametrize("name", ["utils", "util", "helpers", "helper", "common", "misc", "base"])
def test_no_file_has_a_name_that_says_nothing(name):
    assert [path for path in SOURCES if path.stem == name] == []


def loaded_after(code: str) -> set[str]:
    probe = f"import sys\n{code}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import ablate",
        "import ablate.cli",
        "import losses.config",
        "import ablate.workloads.sequence_file.config",
        "import ablate.workloads.synthetic_sequences.config",
    ],
)
def test_light_modules_load_nothing_heavy(code):
    assert loaded_after(code) & set(HEAVY) == set()


def test_help_loads_little_beyond_typer():
    code = """
import ablate.cli
try:
    ablate.cli.app(['--help'])
except SystemExit as end:
    assert not end.code, end.code
"""
    assert loaded_after(code) & {*HEAVY, "numpy", "pydantic", "rich"} == set()


def test_validating_a_built_in_workload_loads_nothing_heavy():
    code = """
import ablate.cli
try:
    ablate.cli.app(['validate', 'studies/quickstart.yaml'])
except SystemExit as end:
    assert not end.code, end.code
"""
    assert loaded_after(code) & set(HEAVY) == set()
