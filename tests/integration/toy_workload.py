"""A workload without torch that fails in every way a trial can. Each execution leaves a line in executions.txt."""

import os
import signal
import time
from pathlib import Path


def train(config, trial):
    with Path(config["log"]).open("a") as file:
        file.write(f"{config['fault']} {trial.seed} {os.getpid()}\n")
    if config["fault"] == "exit":
        os._exit(0)
    state = trial.checkpoint_dir / "step.txt"
    start = int(state.read_text() or 0) if state.exists() else 0
    print(f"starting after step {start}")
    print(f"device {trial.device}")
    rng = trial.rng("noise")
    values = [config["x"] + rng.normal() for _ in range(config["steps"])]
    for step in range(start + 1, config["steps"] + 1):
        time.sleep(config["sleep"])
        trial.report(step, {"loss": values[step - 1], "aux/step": step})
        state.write_text(str(step))
        trial.checkpointed(step)
        if step == 2:
            _fail(config["fault"], start)
    trial.keep_text("last.txt", f"{values[-1]}")
    return {"loss": float("nan") if config["fault"] == "nan" else values[-1]}


def _fail(fault, start):
    if fault == "raise":
        raise RuntimeError("boom")
    if fault == "killed-once" and start == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        time.sleep(600)


def train_silently(config, trial):
    return {} | {"other": config["x"]}  # so that its text does not say what it reports
