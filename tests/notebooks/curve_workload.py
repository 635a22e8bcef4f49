"""A workload without torch: an error that falls to a floor which the configuration sets."""

from __future__ import annotations


def train(config, trial):
    rng = trial.rng("noise")
    level = 2.0 + 0.1 * (1 - config["weight"]) + 0.2 * config["offset"] + 0.01 * rng.normal()
    for step in (0, 10, 20):
        trial.report(step, {"eval/error": level + 0.9**step, "eval/other": float(rng.normal())})
    return {"eval/error": level, "eval/other": 1.0, "train/objective": 12.0}
