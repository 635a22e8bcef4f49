"""A packed workload without torch: each trial is a random walk, and fails in every way a member of a pack can.

Each execution leaves a line in executions.txt. Trained together or alone a walk draws the same numbers.
"""

import json
import os
import signal
import time
from pathlib import Path

from ablate.workloads.contract import PackCost, Trial, TrialDiverged, TrialStopped, Workload


class PackBrokenError(Exception):
    """What the pack function fails with."""


class Walk:
    def __init__(self, config, trial, together):
        self.config, self.trial, self.together = config, trial, together
        with Path(config["log"]).open("a") as file:
            file.write(f"{config['fault']} {trial.seed} {os.getpid()}\n")
        self.rng = trial.rng("noise")
        self.file = trial.checkpoint_dir / "state.json"
        self.step, self.x = 0, float(config["x"])
        if self.file.exists():
            self.step, self.x, self.rng.bit_generator.state = json.loads(self.file.read_text())
        print(f"{config['fault']} starts after step {self.step}")

    @property
    def is_done(self):
        return self.step >= self.config["steps"]

    def advance(self):
        time.sleep(self.config["sleep"])
        self.step, self.x = self.step + 1, self.x + self.rng.normal()
        if self.step == 2:
            self.fail(self.config["fault"])
        try:
            self.trial.report(self.step, {"loss": self.x, "aux/step": self.step})
        except TrialStopped:
            self.save()
            raise
        self.save()
        self.trial.checkpointed(self.step)

    def save(self):
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(json.dumps([self.step, self.x, self.rng.bit_generator.state]))
        temporary.replace(self.file)

    def fail(self, fault):
        if fault == "raise":
            raise RuntimeError("boom")
        if fault == "nan":
            raise TrialDiverged("the walk left the plane")
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hang":
            time.sleep(600)
        if fault == "slow":
            time.sleep(1.5)
        if fault == "break" and self.together:
            raise PackBrokenError("no one is to blame")


def train(config, trial):
    walk = Walk(config, trial, together=False)
    while not walk.is_done:
        walk.advance()
    return {"loss": walk.x}


def alone(folder, seed, *, steps):
    """What a trial without a fault ends with that runs by itself, without a runner."""
    folder.mkdir()
    config = {"x": 1.0, "fault": "none", "steps": steps, "sleep": 0.0, "log": folder / "executions.txt"}
    return train(config, Trial(seed=seed, checkpoint_dir=folder))["loss"]


def train_together(members):
    print("a pack begins")
    walks = []
    for member in members:
        with member.turn():
            walks.append((member, Walk(member.config, member.trial, together=True)))
    while walks:
        walks = [(member, walk) for member, walk in walks if goes_on(member, walk)]


def goes_on(member, walk):
    try:
        with member.turn():
            if not walk.is_done:
                walk.advance()
    except PackBrokenError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this member's
        member.end(error)
        return False
    if walk.is_done:
        member.end({"loss": walk.x})
    return not walk.is_done


def costs(config, shared_dir, sizes, device):
    with Path(config["log"]).with_name("measured.txt").open("a") as file:
        file.write(f"{device} {' '.join(map(str, sizes))}\n")
    return {size: PackCost(step_s=1.0 + 0.1 * size, peak_bytes=size * 2**20) for size in sizes if size <= 4}


WORKLOAD = Workload(
    name="packed_toy",
    train="packed_toy:train",
    sources=("packed_toy",),
    pack="packed_toy:train_together",
    pack_key=lambda config: "walk",
    pack_costs="packed_toy:costs",
    steps=lambda config: config["steps"] * 1000,
)
