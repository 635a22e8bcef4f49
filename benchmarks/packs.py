"""What a member of a pack costs, by the size of the pack: a step of the sequence VAE trainer.

    python benchmarks/packs.py [--device cpu] [--seconds 4]

Steps of packs of each size alternate with steps of a pack of one, and the ratio is the median over these pairs, so
that a busy machine slows both. A pack of one is what `run.pack: 1` runs. On the CPU one thread works, as in a trial.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from ablate.workloads.contract import Trial
from ablate.workloads.sequence_vae import training_pack
from ablate.workloads.sequence_vae.model_pack import ModelPack
from ablate.workloads.sequence_vae.reference_table import ReferenceTable, open_table
from ablate.workloads.sequence_vae.trial_setup import set_up, trial_settings
from ablate.workloads.synthetic_sequences.config import Config, prepared_key
from ablate.workloads.synthetic_sequences.workload import prepare

SIZES = (2, 4, 8, 16, 32)
SHAPES = [
    ("gru", 16, 32, 1),
    ("gru", 64, 32, 1),
    ("transformer", 16, 32, 1),
    ("transformer", 64, 32, 1),
    ("transformer", 64, 64, 2),
]
Step = Callable[[], None]


def configuration(core: str, batch: int, width: int, layers: int) -> dict[str, Any]:
    model = {"encoder": core, "decoder": core, "width": width, "layers": layers}
    sections = {"model": model, "training": {"batch_size": batch}, "reference": {"steps": 50}}
    return Config.model_validate(sections).model_dump(mode="json")


def pack_of(size: int, config: dict[str, Any], table: ReferenceTable, device: str) -> Step:
    """A function that takes the next step of so many trials together."""
    made = [set_up(trial_settings(config), table, Trial(seed=seed), device) for seed in range(size)]
    states, setups = [state for state, _ in made], [setup for _, setup in made]
    trainings = [setup.settings.training for setup in setups]
    pack = ModelPack([state.model for state in states], trainings, [state.optimiser for state in states])
    number = iter(range(10**9))

    def step() -> None:
        training_pack.train_together(pack, setups, [next(number)] * size)
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def against(step: Step, alone: Step, budget_s: float) -> tuple[float, float]:
    """Median seconds of the step, and the median ratio of neighbours."""
    for _ in range(2):
        step()
        alone()
    pairs = []
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end or len(pairs) < 5:
        pairs.append((seconds(step), seconds(alone)))
    return statistics.median(s for s, _ in pairs), statistics.median(s / a for s, a in pairs)


def prepared_shapes() -> Iterator[tuple[str, dict[str, Any], ReferenceTable]]:
    """Each of SHAPES as the cells of a row, its configuration, and its table, which is there until the next."""
    for shape in SHAPES:
        config = configuration(*shape)
        with tempfile.TemporaryDirectory() as folder:
            prepare(config, Path(folder))
            yield ", ".join(map(str, shape)), config, open_table(prepared_key(config), Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, default=4.0, help="time spent on each size")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {arguments.device}, {platform.machine()}, {os.cpu_count()} cores, one thread\n")
    print("| core, batch, width, layers | alone, ms | " + " | ".join(f"pack of {size}" for size in SIZES) + " |")
    print("|---" * (len(SIZES) + 2) + "|")
    for shape, config, table in prepared_shapes():
        alone = pack_of(1, config, table, arguments.device)
        alone_s = statistics.median(seconds(alone) for _ in range(20))
        gains = []
        for size in SIZES:
            _, ratio = against(pack_of(size, config, table, arguments.device), alone, arguments.seconds)
            gains.append(f"{size / ratio:.2f}x")
        print(f"| {shape} | {alone_s * 1e3:.1f} | {' | '.join(gains)} |", flush=True)


if __name__ == "__main__":
    main()
