"""Where the time of a training step of the sequence VAE goes: forward, backward, optimiser, and all else.

    python benchmarks/step.py [--steps 200]

One thread; processor time, the median of a step and shares of the sum over all steps (examples are read for many steps
at once). "Batch" is the reading of its examples, "rest" the gradients' norms and clipping and the one read of what came
of the step.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from packs import pack_of, prepared_shapes

from ablate.workloads.sequence_vae import training_pack
from ablate.workloads.sequence_vae.model_pack import ModelPack

PARTS: dict[str, tuple[object, str]] = {
    "batch": (training_pack, "gather"),
    "forward": (training_pack, "pack_losses"),
    "backward": (torch.autograd, "grad"),
    "optimiser": (ModelPack, "step"),
}


@contextmanager
def clocked() -> Iterator[dict[str, float]]:
    """Adds up the processor time of each part of the steps inside."""
    spent = dict.fromkeys(PARTS, 0.0)

    def on_the_clock(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return function(*given, **named)
            finally:
                spent[name] += time.process_time() - start

        return run

    with ExitStack() as stack:
        for name, (owner, attribute) in PARTS.items():
            plain = getattr(owner, attribute)
            stack.enter_context(mock.patch.object(owner, attribute, on_the_clock(name, plain)))
        yield spent


def shares(step: Callable[[], None], steps: int) -> tuple[float, dict[str, float]]:
    """Median seconds of a step, and the share of each part in all steps."""
    for _ in range(5):
        step()
    wholes = []
    with clocked() as spent:
        for _ in range(steps):
            start = time.process_time()
            step()
            wholes.append(time.process_time() - start)
    parts = {**spent, "rest": sum(wholes) - sum(spent.values())}
    return statistics.median(wholes), {name: part / sum(wholes) for name, part in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores, one thread\n")
    columns = ["ms", *PARTS, "rest", "outside"]
    print(f"| core, batch, width, layers | trials | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 2) + "|")
    for shape, config, table in prepared_shapes():
        for size in (1, 8):
            whole_s, found = shares(pack_of(size, config, table, "cpu"), arguments.steps)
            cells = [f"{share:.1%}" for share in (*found.values(), found["batch"] + found["rest"])]
            print(f"| {shape} | {size} | {whole_s * 1e3:.1f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
