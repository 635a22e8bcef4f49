"""A trial that eats all memory: Ray's memory monitor gives up the round, and only the guilty trial pays for it."""

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

GIB = 2**30
HUNGRY = """
import time
import toy_workload


def train(config, trial):
    if config["fault"] == "hungry":
        trial.report(1, {"aux/step": 1})
        eaten = []
        for _ in range(40):
            eaten.append(b"x" * (200 * 2**20))
            time.sleep(0.1)
        time.sleep(30)
    return toy_workload.train(config, trial)
"""
STUDY = """
study: toy
workload: hungry:train
baseline: {{x: 1.0, fault: none, steps: 6, sleep: 0.5, log: {log}}}
factors: {{fault: [none, hungry, other]}}
designs: [{{one_at_a_time: [fault]}}]
seeds: {{count: 2}}
metrics: {{primary: {{name: loss}}}}
run: {{max_failure_rate: 1.0, retries: 1}}
"""


@pytest.mark.skipif(psutil.virtual_memory().available < 8 * GIB, reason="needs 8 GiB of free memory")
def test_only_the_trial_that_eats_all_memory_uses_up_its_retries(place, monkeypatch):
    memory = psutil.virtual_memory()
    monkeypatch.setenv(
        "RAY_memory_usage_threshold", f"{(memory.total - memory.available + 4 * GIB) / memory.total:.4f}"
    )
    (place.path / "hungry.py").write_text(HUNGRY)
    place.write(STUDY.format(log=place.path / "executions.txt"))
    _, err = place.ablate("run", "study.yaml", code=1)
    print(err)
    frame = place.study().trials()
    assert {(row.arm, row.state, row.reason) for row in frame.itertuples()} == {
        ("baseline", "COMPLETE", ""),
        ("fault=hungry", "FAIL", "died"),
        ("fault=other", "COMPLETE", ""),
    }
    deaths = {(t.user_attrs["arm"], t.user_attrs["seed"]): t.user_attrs.get("deaths", 0) for t in place.optuna_trials()}
    assert {key: count for key, count in deaths.items() if count} == {("fault=hungry", seed): 2 for seed in range(2)}
    assert place.ablate("check", "toy")[0] == "the records agree\n"
