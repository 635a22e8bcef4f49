"""How time grows: with trials, workers, vocabulary and length; a figure with the slopes.

    python benchmarks/scaling.py [--out docs/images/scaling.png] [--keep FILE] [--only NAME...]

Trials are short trainings of the sequence VAE through the whole toolkit, unpacked. A step's time is that of the
quickest step of a training, as the trainer reports it (`time/step_s`), in turns over all sizes: a busy machine slows
all of them, and the quickest least. A slope is that of log time on log size over the three largest sizes, with its
standard error: 1 is proportional. What the file of `--keep` holds is drawn as it was measured; the rest is measured
and kept there. Ray's workers have the priority of other processes here, not the low one that Ray gives them, under
which they starve on a busy machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy.stats import linregress

os.environ.setdefault("RAY_worker_niceness", "0")

from ablate.plots.style import BLUE, GREY, RC, Floats, new_panels, tidy
from ablate.run.calling import run_study
from ablate.workloads.contract import Trial
from ablate.workloads.synthetic_sequences.workload import costs, prepare, train

STUDY = """
study: scaling
workload: synthetic_sequences
baseline:
  data: {{examples: 256, select_examples: 64, report_examples: 64}}
  reference: {{steps: 20}}
  training: {{steps: {steps}, batch_size: 32}}
factors: {{kl.beta: [0.5, 1.0]}}
designs: [{{one_at_a_time: [kl.beta]}}]
seeds: {{count: {seeds}}}
evaluation: {{every: 1.0, iwae_samples: 8, iwae_examples: 32}}
metrics: {{primary: {{name: eval/neg_elbo_per_token, goal: minimize}}}}
run: {{pack: 1, max_concurrent: {workers}}}
"""
TRIALS, WORKERS, TRIALS_OF_WORKERS = (16, 64, 256), (1, 2), 48
ALPHABETS = ((2, 4), (2, 32), (2, 128), (2, 512), (4, 1024))
"""Registers, and symbols of each."""
LENGTHS = (8, 16, 32, 64, 128)
PACKS = (1, 2, 4, 8, 16, 32)
TURNS = 3


@dataclass(frozen=True)
class Series:
    """Times by size: `times[i]` belongs to `sizes[i]`, which may come several times; `time` has their unit."""

    title: str
    size: str
    time: str
    sizes: Sequence[int]
    times: Sequence[float]

    def fit(self) -> tuple[str, Floats, Floats]:
        """The power law of the three largest sizes, where what does not grow weighs least: in words, and as a line."""
        largest = sorted(set(self.sizes))[-3:]
        own = np.isin(self.sizes, largest)
        found = linregress(np.log(np.array(self.sizes)[own]), np.log(np.array(self.times)[own]))
        ends = np.array([largest[0], largest[-1]], dtype=float)
        error = f" ± {found.stderr:.2f}" if own.sum() > 2 else ""
        return f"slope {found.slope:.2f}{error}", ends, np.exp(found.intercept) * ends**found.slope

    def draw(self, axes: Axes) -> None:
        """Every measurement, and the power law."""
        slope, ends, line = self.fit()
        axes.plot(ends, line, color=GREY, lw=1, label=slope)
        axes.plot(self.sizes, self.times, color=BLUE, marker="o", ms=4, lw=0)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        ticks = sorted(set(self.sizes))
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        low, high = math.log10(min(self.times)), math.log10(max(self.times))
        digits = 1 if high - low > 0.5 else 2  # else there would be one mark for all
        marks = [float(f"{10**place:.{digits}g}") for place in np.linspace(low, high, 4)]
        axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
        axes.set_title(self.title)
        axes.set_xlabel(self.size)
        axes.set_ylabel(self.time)
        axes.legend(frameon=False, loc="best", handlelength=1.2)
        tidy(axes)

    def as_text(self) -> str:
        """Median of each size, and the slope."""
        cells = []
        for size in sorted(set(self.sizes)):
            own = [taken for at, taken in zip(self.sizes, self.times, strict=True) if at == size]
            cells.append(f"{size}: {statistics.median(own):.3g}")
        return f"{self.title} ({self.time} by {self.size}): {', '.join(cells)}; {self.fit()[0]}"


def run_seconds(trials: int, workers: int, steps: int) -> float:
    """From the first trial's start to the last one's end."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path("study.yaml").write_text(STUDY.format(seeds=trials // 2, workers=workers, steps=steps))
        frame = run_study("study.yaml").trials()
    assert set(frame["state"]) == {"COMPLETE"}, frame["state"].value_counts()
    ends = frame["started"] + pd.to_timedelta(frame["duration_s"], unit="s")
    return float((ends.max() - frame["started"].min()).total_seconds())


def by_trials() -> Series:
    """Time of a run against its number of trials."""
    seconds = [run_seconds(trials, workers=2, steps=5) for trials in TRIALS]
    return Series("trials, two workers", "trials", "run, s", TRIALS, seconds)


def by_workers() -> Series:
    """Time of a run against its number of workers."""
    turns = [(workers, run_seconds(TRIALS_OF_WORKERS, workers, steps=20)) for _turn in range(2) for workers in WORKERS]
    sizes, seconds = zip(*turns, strict=True)
    return Series(f"workers, {TRIALS_OF_WORKERS} trials", "workers", "run, s", sizes, seconds)


def step_times(configs: Mapping[int, Mapping[str, Any]]) -> tuple[list[int], list[float]]:
    """Time of the quickest step of a training under each configuration, once a turn: sizes and ms."""
    shared = {
        "reference": {"steps": 10},
        "training": {"steps": 40, "batch_size": 64},
        "model": {"width": 32, "layers": 1},
    }
    sizes, milliseconds = [], []
    with tempfile.TemporaryDirectory() as name:
        for config in configs.values():
            prepare({**shared, **config}, Path(name))
        for turn in range(TURNS):
            for size, config in configs.items():
                evaluation = {"every": 1.0, "iwae_samples": 1, "iwae_examples": 8}
                trial = Trial(seed=turn, shared_dir=Path(name), evaluation=evaluation)
                train({**shared, **config}, trial)
                times = [row.metrics["time/step_s"] for row in trial.rows if "time/step_s" in row.metrics]
                sizes.append(size)
                milliseconds.append(1000 * min(times))
    return sizes, milliseconds


def _data(registers: int, symbols: int, length: int) -> dict[str, Any]:
    return {
        "data": {
            "examples": 256,
            "select_examples": 64,
            "report_examples": 64,
            "registers": registers,
            "symbols": symbols,
            "length_buckets": [[length, length]],
        }
    }


def by_vocabulary() -> Series:
    """Time of a step against the number of tokens: three special ones, and those of each register."""
    configs = {3 + registers * symbols: _data(registers, symbols, 16) for registers, symbols in ALPHABETS}
    return Series("vocabulary, length 16", "tokens", "step, ms", *step_times(configs))


def by_length() -> Series:
    """Time of a step against the length of every sequence."""
    configs = {length: _data(2, 4, length) for length in LENGTHS}
    return Series("length, 11 tokens", "length", "step, ms", *step_times(configs))


def by_pack() -> Series:
    """Time of a step of one member against the size of its pack."""
    cores = {"encoder": "gru", "decoder": "gru", "width": 32, "layers": 1}
    config = {"reference": {"steps": 10}, "model": cores, "training": {"batch_size": 16}, **_data(2, 4, 16)}
    sizes, milliseconds = [], []
    with tempfile.TemporaryDirectory() as name:
        prepare(config, Path(name))
        for _turn in range(TURNS):
            for size, cost in costs(config, Path(name), PACKS, "cpu").items():
                sizes.append(size)
                milliseconds.append(1000 * cost.step_s / size)
    return Series("trials in a pack, GRU, batch 16", "trials", "step of one, ms", sizes, milliseconds)


MEASUREMENTS = {
    "vocabulary": by_vocabulary,
    "length": by_length,
    "pack": by_pack,
    "workers": by_workers,
    "trials": by_trials,
}


def measured(name: str) -> Series:
    """Measure, and say what came of it at which load."""
    load, began = os.getloadavg()[0], time.perf_counter()
    found = MEASUREMENTS[name]()
    print(f"{found.as_text()}; load {load:.1f}, {time.perf_counter() - began:.0f} s", flush=True)
    return found


def draw(found: Sequence[Series], path: Path) -> None:
    """A panel each."""
    with mpl.rc_context(RC):
        panels = new_panels(len(found), columns=2, row_height=2.4)
        for series, axes in zip(found, panels, strict=True):
            series.draw(axes)
        figure = panels[0].get_figure(root=True)
        assert figure is not None
        figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where to write the figure")
    parser.add_argument("--keep", type=Path, help="where to keep what was measured, as JSON")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS))
    arguments = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores")
    kept = json.loads(arguments.keep.read_text()) if arguments.keep and arguments.keep.exists() else {}
    found = {name: Series(**values) for name, values in kept.items()}
    for name in arguments.only:
        if name not in found:
            found[name] = measured(name)
            if arguments.keep:
                arguments.keep.write_text(json.dumps({name: asdict(series) for name, series in found.items()}))
    if arguments.out:
        draw([found[name] for name in MEASUREMENTS if name in found], arguments.out)


if __name__ == "__main__":
    main()
