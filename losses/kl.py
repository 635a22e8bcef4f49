"""Closed-form KL of both latent types, free bits, and the schedules of beta and of the Gumbel temperature."""

from __future__ import annotations

import math

from torch import Tensor

from losses.config import BetaSchedule, Number, TemperatureSchedule
from losses.nll import at_least_float32, mean_over_examples


def gaussian_kl_per_dimension(mu: Tensor, logvar: Tensor) -> Tensor:
    """KL of N(mu, diag sigma^2) against N(0, I), by latent dimension.

    KL_bj = (mu^2 + sigma^2 - 1 - log sigma^2) / 2

    Args:
        mu: [B, D].
        logvar: [B, D], log sigma^2.
    Returns: [B, D], nats, float32 or wider.
    Raises: ValueError if the shapes differ.
    Source: docs/loss_stack.md, section 5.
    """
    if mu.shape != logvar.shape:
        raise ValueError(f"logvar: got shape {tuple(logvar.shape)}; allowed: {tuple(mu.shape)} as mu has it")
    mean, log_variance = at_least_float32(mu), at_least_float32(logvar)
    # expm1 keeps the difference exact near the prior, where exp(logvar) - 1 cancels.
    return 0.5 * (mean.square() + (log_variance.expm1() - log_variance))


def gaussian_kl(mu: Tensor, logvar: Tensor) -> Tensor:
    """KL of N(mu, diag sigma^2) against N(0, I): KL_b = sum_j KL_bj.

    Args, Raises, Source: as `gaussian_kl_per_dimension`.
    Returns: [B], nats a sequence, float32 or wider.
    """
    return gaussian_kl_per_dimension(mu, logvar).sum(-1)


def categorical_kl_per_group(logits: Tensor) -> Tensor:
    """KL of K-way categoricals against the uniform one, by group.

    KL_bg = sum_k q_bgk (log q_bgk + log K), q = softmax(logits)

    Args:
        logits: [B, G, K].
    Returns: [B, G], nats, float32 or wider.
    Raises: ValueError if the logits have not three dimensions.
    Source: docs/loss_stack.md, section 5.
    """
    if logits.dim() != 3:
        raise ValueError(f"logits: got shape {tuple(logits.shape)}; allowed: [B, groups, K]")
    log_q = at_least_float32(logits).log_softmax(-1)
    return (log_q.exp() * (log_q + math.log(logits.shape[-1]))).sum(-1)


def categorical_kl(logits: Tensor) -> Tensor:
    """KL of a product of K-way categoricals against the uniform prior: KL_b = sum_g KL_bg.

    Args, Raises, Source: as `categorical_kl_per_group`.
    Returns: [B], nats a sequence, float32 or wider.
    """
    return categorical_kl_per_group(logits).sum(-1)


def free_bits(kl_per_dimension: Tensor, lambda_fb: Number, mask: Tensor) -> Tensor:
    """L_KL with free bits: sum_j max(<KL_bj>, lambda_fb).

    The batch mean is clamped, not each example (Kingma et al. 2016). lambda_fb = 0 is L_KL = <KL_b>.

    Args:
        kl_per_dimension: [B, D], of dimensions or groups, nats. Read only for examples with n_b > 0.
        lambda_fb: >= 0, nats a dimension or group.
        mask: [B, L] or [B] bool, as `mean_over_examples` takes it.
    Returns: scalar, nats a sequence.
    Raises: ValueError if lambda_fb is a negative or non-finite number, or the batch sizes disagree.
    Source: docs/loss_stack.md, section 5.
    """
    if not isinstance(lambda_fb, Tensor) and not 0 <= lambda_fb < math.inf:
        raise ValueError(f"lambda_fb: got {lambda_fb!r}; allowed: a finite number >= 0")
    return mean_over_examples(kl_per_dimension, mask).clamp(min=lambda_fb).sum()


def beta_at(schedule: BetaSchedule, step: int) -> float:
    """Beta at a step, counted from 0.

    constant: beta.  linear_warmup: beta min(1, step / warmup_steps).
    cyclical: beta min(1, phase / cycle_ramp), phase = (step mod cycle_steps) / cycle_steps.

    Source: docs/loss_stack.md, section 5.
    """
    match schedule.schedule:
        case "constant":
            share = 1.0
        case "linear_warmup":
            share = min(1.0, step / schedule.warmup_steps)
        case "cyclical":
            share = min(1.0, step % schedule.cycle_steps / schedule.cycle_steps / schedule.cycle_ramp)
    return schedule.beta * share


def temperature_at(schedule: TemperatureSchedule, step: int) -> float:
    """Temperature of the Gumbel-softmax at a step, counted from 0: max(minimum, initial exp(-anneal_rate step)).

    Source: docs/loss_stack.md, section 5.
    """
    return max(schedule.minimum, schedule.initial * math.exp(-schedule.anneal_rate * step))
