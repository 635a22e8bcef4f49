"""How long commands take that start nothing: `ablate --help`, and `ablate validate` of a study.

    python benchmarks/start_up.py [STUDY] [--repeats 15]

Processes in turn, so that a busy machine slows all of them; the median of each, and of its ratio to
`python -c "import typer, rich"` in the same turn.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

ABLATE = [sys.executable, "-m", "ablate.cli"]
BASELINE = 'python -c "import typer, rich"'


def seconds_of(command: list[str]) -> float:
    """Wall time of one process."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", nargs="?", default="studies/quickstart.yaml")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    commands = {
        BASELINE: [sys.executable, "-c", "import typer, rich"],
        "ablate --help": [*ABLATE, "--help"],
        f"ablate validate {arguments.study}": [*ABLATE, "validate", arguments.study],
    }
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {arguments.repeats} turns")
    turns = [
        {name: seconds_of(command) for name, command in commands.items()} for _turn in range(arguments.repeats + 1)
    ][1:]  # the first one reads the files from disk
    for name in commands:
        took = statistics.median(turn[name] for turn in turns)
        ratio = statistics.median(turn[name] / turn[BASELINE] for turn in turns)
        print(f"{name:<45} {took * 1000:6.0f} ms  {ratio:.2f}x")


if __name__ == "__main__":
    main()
