"""What every built-in workload keeps to, whichever it is."""

import inspect
import subprocess
import sys

import pytest

from ablate.workloads import BUILT_IN, find_workload, load_object
from ablate.workloads.contract import Trial

WORKLOADS = sorted(BUILT_IN)


@pytest.mark.parametrize("name", WORKLOADS)
class TestWorkload:
    def test_it_is_named_as_it_is_found(self, name):
        assert find_workload(name).name == name

    def test_describing_it_loads_nothing_heavy(self, name):
        code = (
            f"import sys; from ablate.workloads import find_workload; w = find_workload({name!r}); "
            "c = w.config_type().model_dump(mode='json'); w.fingerprint(c); w.prepared_key(c); "
            "print(sorted({'torch', 'ray', 'mlflow', 'optuna', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_its_functions_are_there_and_take_what_the_contract_says(self, name):
        workload = find_workload(name)
        takes = {
            workload.train: ["config", "trial"],
            workload.prepare: ["config", "shared_dir"],
            workload.scales: ["configs", "baseline", "shared_dir"],
            workload.geometry: ["request", "shared_dir"],
        }
        for reference, parameters in takes.items():
            assert list(inspect.signature(load_object(reference)).parameters) == parameters

    def test_its_defaults_are_a_valid_configuration_that_survives_json(self, name):
        made = find_workload(name).config_type
        assert made.model_validate(made().model_dump(mode="json")) == made()

    def test_it_reports_what_it_is_compared_by(self, name):
        workload = find_workload(name)
        assert workload.primary in workload.metrics
        assert workload.primary.replace("eval/", "select/") in workload.metrics

    def test_its_code_can_be_found(self, name):
        for source in find_workload(name).sources:
            assert load_object(f"{source}:__name__") == source


@pytest.mark.parametrize("name", ["", "a/b.txt", "../up", ".hidden", "x" * 101, "a b"])
def test_a_text_needs_a_plain_file_name(name):
    with pytest.raises(ValueError, match=r"^a text named"):
        Trial(seed=0).keep_text(name, "text")
