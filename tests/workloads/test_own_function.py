"""A trial function of one's own: what is known of it before it runs, and what is said of one that can be none."""

import re
import sys
import textwrap

import pytest

from ablate.cli import app
from ablate.errors import SpecError
from ablate.spec.loading import load_study
from ablate.workloads import find_workload, import_path

CODE = """
import functools
from ablate.workloads.contract import Trial

DEFAULTS = {"lr": 0.1, "layers": 2, "bias": True, "model": {"width": 8}, "sizes": (3, 4), "note": None, "copy": 1}

def train(config=DEFAULTS, trial=None):
    trial = trial or Trial(seed=0)
    for step in range(3):
        trial.report(step, {"train/loss": 1.0})
    def inner():
        return {"not": "a metric"}
    return {"loss": config["lr"], "accuracy": 1.0}

def reads(config, trial):
    return {"loss": config.get("lr", 0.5) + config.get("layers", 2), "x": config.get("x", trial.seed)}

def bad_name(config, trial):
    return {"loss": 1.0, "acc@1": 1.0}

def one(config): ...
def three(config, trial, extra): ...
def keyword(config, *, trial): ...
def generator(config, trial):
    yield {}
class Train:
    def __init__(self, config, trial): ...
number = 3
def odd_default(config={"a.b": 1}, trial=None): ...
def odd_value(config={"model": {"act": len}}, trial=None): ...

def decorated_function(function):
    return function

@decorated_function
def decorated(config, trial):
    return {"loss": 1.0}
def hands_over(config, trial):
    fit(trial)
    return {"loss": 1.0}
def hands_method_over(config, trial):
    fit(trial.report)
    return {"loss": 1.0}
def computed(config, trial):
    return dict(loss=1.0)
def unpacked(config, trial):
    return {"loss": 1.0, **config}
def reports_a_name(config, trial):
    metrics = {"a": 1}
    trial.report(1, metrics)
    return {"loss": 1.0}
def reports_by_keyword(config, trial):
    trial.report(step=1, metrics={"a": 1})
    return {"loss": 1.0}
def closes_over(config, trial):
    def callback(values):
        trial.report(1, values)
    return {"loss": 1.0}
def in_a_list(config, trial):
    fit([trial])
    return {"loss": 1.0}
"""

STUDY = """
study: own
workload: own_code:train
baseline: {lr: 1}
factors: {lr: [1, 2]}
designs: [{one_at_a_time: lr}]
metrics: {primary: {name: loss}}
"""

NEEDED = "allowed: a function train(config, trial) that returns a dict of metrics"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_code.py").write_text(textwrap.dedent(CODE))
    (tmp_path / "needs_more.py").write_text("import not_installed_at_all")
    for name in ("own_code", "needs_more"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with import_path(tmp_path):
        yield tmp_path


@pytest.fixture
def load(folder):
    def loaded(*changes):
        (folder / "study.yaml").write_text(STUDY)
        return load_study(folder / "study.yaml", overrides=changes, workload_lookup=find_workload)

    return loaded


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one", rf"own_code:one has the signature \(config\) \(too many positional arguments\); {re.escape(NEEDED)}"),
        ("three", rf"own_code:three .* \(missing a required argument: 'extra'\); {re.escape(NEEDED)}"),
        ("keyword", rf"own_code:keyword has the signature \(config, \*, trial\) .*; {re.escape(NEEDED)}"),
        ("Train", f"own_code:Train is a class; {re.escape(NEEDED)}"),
        ("number", f"own_code:number is of type int; {re.escape(NEEDED)}"),
        ("generator", f"own_code:generator is a coroutine or a generator; {re.escape(NEEDED)}"),
        ("bad_name", "metric name 'acc@1' cannot be recorded; allowed are .*"),
        ("odd_default", r"own_code:odd_default has the default 'a\.b'; allowed: names without .*"),
        ("odd_value", r"own_code:odd_value has builtin_function_or_method as the default of model\.act; allowed: .*"),
        ("trian", "module own_code has no trian; did you mean train?"),
    ],
)
def test_what_cannot_be_a_trial_function_is_said(folder, name, message):
    with pytest.raises(LookupError) as caught:
        find_workload(f"own_code:{name}")
    assert type(caught.value) is LookupError
    assert re.fullmatch(message.replace("train?", r"train\?"), str(caught.value))


def test_a_module_that_is_not_there_is_told_from_one_that_it_imports(folder):
    with pytest.raises(LookupError, match=r"^no module own_cod; looked in the study file's folder, the"):
        find_workload("own_cod:train")
    with pytest.raises(ModuleNotFoundError, match="No module named 'not_installed_at_all'"):
        find_workload("needs_more:train")
    with pytest.raises(LookupError, match=r"did you mean own_code:train\?$"):
        find_workload("own_code.train")


def test_what_a_module_prints_is_no_part_of_a_commands_output(folder, capsys, monkeypatch):
    (folder / "talks.py").write_text("print('hello')\ndef train(config, trial): ...\n")
    monkeypatch.delitem(sys.modules, "talks", raising=False)
    find_workload("talks:train")
    assert capsys.readouterr() == ("", "hello\n")


def test_defaults_of_the_function_fill_and_check_the_baseline(load):
    spec = load()
    assert spec.baseline == {
        "lr": 1.0, "layers": 2, "bias": True, "model": {"width": 8}, "sizes": [3, 4], "note": None, "copy": 1,
    }  # fmt: skip
    for change, message in [
        ("baseline.lrr=1", "unknown key; allowed: .*; did you mean lr?"),
        ("baseline.model.width=2.5", "got 2.5; allowed: a whole number"),
        ("metrics.primary.name=los", 'got "los"; allowed: a metric of the workload; did you mean loss?'),
    ]:
        with pytest.raises(Exception, match=message.replace("?", r"\?")):
            load(change)


def test_metrics_are_known_where_the_text_names_them_all(folder):
    found = find_workload("own_code:train")
    assert found.metrics == {"loss", "accuracy", "train/loss"}
    assert found.primary == "loss"


@pytest.mark.parametrize(
    "name",
    [
        "decorated", "hands_over", "hands_method_over", "computed", "unpacked", "reports_a_name",
        "reports_by_keyword", "closes_over", "in_a_list",
    ],
)  # fmt: skip
def test_metrics_are_open_where_the_text_may_not_name_them_all(folder, name):
    assert find_workload(f"own_code:{name}").metrics is None


@pytest.mark.parametrize(
    ("function", "baseline", "factor"),
    [
        ("train", {"lr": 0.1, "layers": 2, "model": {"width": 8}}, "lr: [0.5x, 1x, 2x]"),
        ("reads", {"lr": 0.5, "layers": 2}, "lr: [0.5x, 1x, 2x]"),
    ],
)
def test_init_writes_a_study_from_the_functions_defaults(folder, capsys, function, baseline, factor):
    file = folder / "new.yaml"
    app(["init", str(file), "--workload", f"own_code:{function}"], standalone_mode=False)
    assert f"\n  {factor} " in file.read_text()
    spec = load_study(file, workload_lookup=find_workload)
    assert baseline.items() <= spec.baseline.items()
    assert spec.metrics.primary.name == "loss"
    assert capsys.readouterr().err == f"wrote {file}; try: ablate plan {file}\n"


def test_init_says_what_it_cannot_know(folder, capsys):
    app(["init", str(folder / "new.yaml"), "--workload", "own_code:computed"], standalone_mode=False)
    assert capsys.readouterr().err.startswith("what own_code:computed reads of its config is not known; write it under")
    with pytest.raises(SpecError, match=r"^--workload: got 'needs_more:train'; ModuleNotFoundError: No module named"):
        app(["init", str(folder / "other.yaml"), "--workload", "needs_more:train"], standalone_mode=False)
    assert not (folder / "other.yaml").exists()


def test_a_function_of_ones_own_trains_one_trial_at_a_time(load, folder):
    with pytest.raises(SpecError) as caught:
        load("run.pack=8")
    assert str(caught.value) == (
        "--set: run.pack: got 8; a training function of one's own trains one trial at a time; allowed: auto, 1"
    )
    assert load("run.pack=auto").run.pack == "auto"
