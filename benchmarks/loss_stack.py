"""The loss stack against one cross entropy on the same logits, forward and backward: time and peak memory.

    python benchmarks/loss_stack.py [--threads 1] [--seconds 20] [--device cuda] [--crossover | --classes]

`--crossover` asks instead from which size on `linear_masked_token_nll` is better off without the logits; `--classes` up
to how many classes the token NLL, forward and backward, is faster by exponentials than by the softmax. On CUDA all is
measured with Liger's kernel where that is installed and proves itself, and the rows say so.

Ratios are taken within one run, two ways. "In a loop": steps of one contender, then as many of its baseline, by turns;
the median of the ratios of their medians. "In turn": a step of one, a step of the other, so that each finds the caches
as the other left them; the median of the ratios. With one thread it is processor time that is counted. Page faults
would dominate at large vocabularies, so the script fixes the allocator (it restarts itself with MALLOC_MMAP_MAX_=0 and
MALLOC_TRIM_THRESHOLD_=17179869184: freed memory is kept, not handed back to the system).
"""

# ruff: noqa: E402 - the allocator is set before torch starts

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable

ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})

import torch
from torch import Tensor
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from losses import (
    TERMS,
    ReconstructionLossConfig,
    effective_token_weight_table,
    effective_token_weights,
    linear_masked_token_nll,
    masked_token_nll_per_position,
    prepare_reference,
    reconstruction_losses,
)
from losses import cross_entropy as cross_entropy_module
from losses.cross_entropy import positions_at_once
from losses.fused_kernel import kernel_for
from losses.linear_nll import in_chunks

SHAPES = [(128, 32, 11), (128, 32, 64), (64, 64, 1000), (16, 128, 32000)]
CLASSES = [(128, 32, v) for v in (11, 30, 64, 100, 128, 200, 256)]
LARGE_VOCABULARIES = [(64, 64, 1000), (16, 128, 32000)]
SIZES = [(b, 32, v) for v in (64, 256, 1000, 4000) for b in (8, 32, 128)]
DATA_SET = 4096
WIDTH = 128
LOOP_S = 0.1
Step = Callable[[], None]


def steps(batch: int, length: int, vocabulary: int, device: str) -> dict[str, Step]:
    """One training step's loss, forward and backward to the logits, in several ways. The first is the baseline."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(batch, length, vocabulary, generator=generator).to(device).requires_grad_()
    targets = torch.randint(vocabulary, (DATA_SET, length), generator=generator).to(device)
    lengths = torch.randint(length // 2, length + 1, (DATA_SET, 1), generator=generator)
    mask = (torch.arange(length) < lengths).to(device)
    surprisal = 4 * torch.rand(DATA_SET, length, generator=generator).to(device)
    config = ReconstructionLossConfig(zfree_reference_scale=50.0)
    prepared = prepare_reference(surprisal, mask, config)
    table = effective_token_weight_table(prepared, config, 0.1)
    index = torch.randperm(DATA_SET, generator=generator)[:batch].to(device)
    prepared_batch = prepared[index]
    batch_targets, batch_mask, batch_surprisal = targets[index], mask[index], surprisal[index]
    masked_targets = batch_targets.masked_fill(~batch_mask, -100)

    def cross_entropy() -> None:
        functional.cross_entropy(logits.view(-1, vocabulary), masked_targets.view(-1)).backward()

    def stack(reference: Callable[[], object]) -> Step:
        def run() -> None:
            nll = masked_token_nll_per_position(logits, batch_targets, batch_mask)
            reconstruction_losses(nll, batch_mask, reference(), config, 0.1).objective.backward()

        return run

    def objective_alone() -> None:
        nll = masked_token_nll_per_position(logits, batch_targets, batch_mask)
        ((table[index] * nll).sum() / batch).backward()

    def one_by_one() -> None:
        total = torch.zeros((), device=device)
        for name in TERMS:
            nll = masked_token_nll_per_position(logits, batch_targets, batch_mask)
            total = total + reconstruction_losses(nll, batch_mask, batch_surprisal, config, 0.1).terms[name]
        total.backward()

    contenders: dict[str, Step] = {
        "cross_entropy": cross_entropy,
        "objective alone": objective_alone,
        "prepared": stack(lambda: prepared_batch),
        "gathered": stack(lambda: prepared[index]),
        "eager": stack(lambda: batch_surprisal),
        "one_by_one": one_by_one,
    }
    return {name: without_trace(step, logits) for name, step in contenders.items()}


def linear_steps(batch: int, length: int, vocabulary: int, device: str, chunk: int | None) -> dict[str, Step]:
    """The same from hidden states and an output matrix: by the logits (the baseline), and in chunks without them."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(batch, length, WIDTH, generator=generator).to(device).requires_grad_()
    matrix = (torch.randn(vocabulary, WIDTH, generator=generator) / WIDTH**0.5).to(device).requires_grad_()
    targets = torch.randint(vocabulary, (batch, length), generator=generator).to(device)
    lengths = torch.randint(length // 2, length + 1, (batch, 1), generator=generator)
    mask = (torch.arange(length) < lengths).to(device)
    config = ReconstructionLossConfig(zfree_reference_scale=50.0)
    prepared = prepare_reference(4 * torch.rand(batch, length, generator=generator).to(device), mask, config)

    def plain() -> None:
        nll = masked_token_nll_per_position(functional.linear(hidden, matrix), targets, mask)
        reconstruction_losses(nll, mask, prepared, config, 0.1).objective.backward()

    def linear() -> None:
        weights = effective_token_weights(prepared, config, 0.1)
        nll, objective = linear_masked_token_nll(hidden, matrix, targets, mask, weights, chunk=chunk)
        objective.backward()
        reconstruction_losses(nll, mask, prepared, config, 0.1)

    name = "linear" if kernel_for(hidden, in_chunks) is None else "linear (Liger)"
    return {name: without_trace(step, hidden, matrix) for name, step in (("by_logits", plain), (name, linear))}


def scoring_steps(batch: int, length: int, vocabulary: int) -> dict[str, Step]:
    """The token NLL, forward and backward: by PyTorch's cross entropy (the baseline), and both of our ways."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(batch, length, vocabulary, generator=generator).requires_grad_()
    targets = torch.randint(vocabulary, (batch, length), generator=generator)
    mask = torch.ones(batch, length, dtype=torch.bool)

    def by_pytorch() -> None:
        functional.cross_entropy(logits.view(-1, vocabulary), targets.view(-1), reduction="none").sum().backward()

    def ours(few_classes: int) -> Step:
        def run() -> None:
            cross_entropy_module.FEW_CLASSES = few_classes
            masked_token_nll_per_position(logits, targets, mask).sum().backward()

        return run

    contenders = {"PyTorch's": by_pytorch, "softmax": ours(0), "exponentials": ours(vocabulary)}
    return {name: without_trace(step, logits) for name, step in contenders.items()}


def without_trace(step: Step, *leaves: Tensor) -> Step:
    """The step, and its gradients freed."""

    def run() -> None:
        step()
        for leaf in leaves:
            leaf.grad = None

    return run


def seconds(step: Step) -> float:
    """Processor time where one thread does everything, which a busy machine changes little; else time on the clock."""
    if torch.get_num_threads() == 1 and not torch.cuda.is_initialized():
        start = time.process_time()
        step()
        return time.process_time() - start
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def in_turn(contender: Step, baseline: Step, budget_s: float) -> float:
    """Median of the ratios of neighbours."""
    ratios = []
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end or len(ratios) < 9:
        base = seconds(baseline)
        ratios.append(seconds(contender) / base)
    return statistics.median(ratios)


def in_loops(contender: Step, baseline: Step, budget_s: float) -> tuple[float, float, float]:
    """Median seconds of the contender and of the baseline, and the median of their ratios, over at least 5 rounds."""
    steps_at_once = max(5, round(LOOP_S / max(seconds(baseline), 1e-6)))
    taken: list[float] = []
    base: list[float] = []
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end or len(base) < 5:
        taken.append(_median_of_loop(contender, steps_at_once))
        base.append(_median_of_loop(baseline, steps_at_once))
    ratio = statistics.median(own / other for own, other in zip(taken, base, strict=True))
    return statistics.median(taken), statistics.median(base), ratio


def _median_of_loop(step: Step, times: int) -> float:
    for _ in range(3):
        step()
    return statistics.median(seconds(step) for _ in range(times))


def peak_bytes(step: Step) -> int:
    """Most bytes the step held at once beyond what was there before it, by torch's own allocator."""
    step()
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="time spent on each row")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--crossover", action="store_true")
    instead.add_argument("--classes", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores,")
    print(f"{arguments.threads} thread(s), {', '.join(f'{k}={v}' for k, v in ALLOCATOR.items())}\n")
    print("| (B, L, V) | loss | ms | baseline | ms | in a loop | in turn | memory ratio |")
    print("|---|---|---|---|---|---|---|---|")
    device = arguments.device
    if arguments.crossover:
        for shape in SIZES:  # with the chunk that is taken for large sizes
            print_rows(shape, linear_steps(*shape, device, positions_at_once(shape[0] * shape[1])), arguments.seconds)
        return
    if arguments.classes:
        for shape in CLASSES:
            print_rows(shape, scoring_steps(*shape), arguments.seconds)
        return
    for shape in SHAPES:
        print_rows(shape, steps(*shape, device), arguments.seconds)
    for shape in LARGE_VOCABULARIES:
        print_rows(shape, linear_steps(*shape, device, None), arguments.seconds)


def print_rows(shape: tuple[int, int, int], contenders: dict[str, Step], budget_s: float) -> None:
    (base_name, baseline), *others = contenders.items()
    for name, step in others:
        step_s, base_s, ratio = in_loops(step, baseline, budget_s / 2)
        turns = in_turn(step, baseline, budget_s / 2)
        memory = peak_bytes(step) / peak_bytes(baseline)
        times = f"{name} | {step_s * 1e3:.2f} | {base_name} | {base_s * 1e3:.2f}"
        print(f"| {shape} | {times} | {ratio:.2f} | {turns:.2f} | {memory:.3f} |", flush=True)


if __name__ == "__main__":
    main()
