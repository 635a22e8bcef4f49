"""The loss stack as float64 loops over plain lists, written from the formulas and apart from the code under test."""

from __future__ import annotations

import math
from dataclasses import dataclass

SIX_TERMS = {
    "reconstruction_loss": "raw_weight",
    "distribution_normalized_reconstruction_loss": "distribution_normalized_weight",
    "example_inverse_surprisal_weighted_reconstruction_loss": "example_inverse_surprisal_weight",
    "token_weighted_reconstruction_loss": "token_weighted_weight",
    "normalized_concentration_corrected_token_weighted_reconstruction_loss": (
        "normalized_concentration_corrected_token_weighted_weight"
    ),
    "normalized_inverse_surprisal_token_weighted_reconstruction_loss": (
        "normalized_inverse_surprisal_token_weighted_weight"
    ),
}

Rows = list[list[float]]


@dataclass
class Expected:
    terms: dict[str, float]
    diagnostics: dict[str, float]
    objective: float
    weights: Rows


def token_nll(scores: list[float], target: int) -> float:
    """-log softmax(scores)[target]."""
    top = max(scores)
    return top + math.log(math.fsum(math.exp(score - top) for score in scores)) - scores[target]


def share_weights(surprisals: list[float], alpha: float) -> list[float]:
    """The tempered surprisal share of one example's active positions."""
    clamped = [max(s, 0.0) for s in surprisals]
    top = max(clamped)
    if top == 0 or alpha == 0:
        return [1.0] * len(clamped)
    powers = [math.exp(alpha * (math.log(s) - math.log(top))) if s > 0 else 0.0 for s in clamped]
    return [len(powers) * p / math.fsum(powers) for p in powers]


def inverse_weights(surprisals: list[float], epsilon: float) -> list[float]:
    """The inverse-surprisal weights of one example's active positions."""
    inverses = [1 / (max(s, 0.0) + epsilon) for s in surprisals]
    return [len(inverses) * i / math.fsum(inverses) for i in inverses]


def reconstruction(nll: Rows, mask: list[list[bool]], surprisal: Rows, config: dict, mean: float | None = None):
    """Terms, diagnostics, objective and effective token weights of a batch; `mean` is <(S + eps)^-1> if given."""
    active = [[t for t, on in enumerate(row) if on] for row in mask]
    present = [b for b, positions in enumerate(active) if positions]
    weights = [[0.0] * len(row) for row in mask]
    if not present:
        return Expected(dict.fromkeys(SIX_TERMS, 0.0), {}, 0.0, weights)

    by_token_mean = config["token_aggregation"] == "token_mean"
    c, count = config["zfree_reference_scale"], len(present)
    share, inverse, kappa, gamma, own = {}, {}, {}, {}, {}
    for b in present:
        s = [max(surprisal[b][t], 0.0) for t in active[b]]
        share[b] = share_weights(s, config["token_weight_alpha"])
        inverse[b] = inverse_weights(s, config["inverse_surprisal_token_weight_epsilon"])
        total = math.fsum(s)
        kappa[b] = math.fsum(w * x for w, x in zip(share[b], s, strict=True)) / total if total else 1.0
        gamma[b] = total / math.fsum(v * x for v, x in zip(inverse[b], s, strict=True)) if total else 1.0
        own[b] = total / len(s) if by_token_mean else total
    epsilon = config["example_inverse_surprisal_epsilon"]
    if mean is None:
        mean = math.fsum(1 / (own[b] + epsilon) for b in present) / count
    example = {b: 1 / (own[b] + epsilon) / mean for b in present}

    def average(values: dict[int, float]) -> float:
        return math.fsum(values[b] for b in present) / count

    matrices = {name: {} for name in SIX_TERMS}
    matrices["inverse_base"] = {}
    for b in present:
        size = len(active[b]) if by_token_mean else 1
        ones = [1.0] * len(active[b])
        rows = [
            ones,
            [1 / c] * len(ones),
            [example[b]] * len(ones),
            share[b],
            [w / kappa[b] / c for w in share[b]],
            [gamma[b] * v / c for v in inverse[b]],
            inverse[b],
        ]
        for name, row in zip(matrices, rows, strict=True):
            matrices[name][b] = [value / size for value in row]

    def mean_loss(name: str) -> float:
        products = [weight * nll[b][t] for b in present for weight, t in zip(matrices[name][b], active[b], strict=True)]
        return math.fsum(products) / count

    for name, field in SIX_TERMS.items():
        for b in present:
            for weight, t in zip(matrices[name][b], active[b], strict=True):
                weights[b][t] += config[field] * weight / count

    terms = {name: mean_loss(name) for name in SIX_TERMS}
    diagnostics = {
        "token_weighted_base_loss": mean_loss("token_weighted_reconstruction_loss"),
        "token_concentration_factor": average(kappa),
        "inverse_token_weighted_base_loss": mean_loss("inverse_base"),
        "inverse_token_base_scale_factor": average(gamma),
    }
    for family, by_example in (("token_weighting", share), ("inverse_token_weighting", inverse)):
        every = [w for b in present for w in by_example[b]]
        diagnostics[f"{family}/weight_max"] = max(every)
        diagnostics[f"{family}/weight_ratio_max_min"] = max(every) / max(min(every), 2.0**-23)
        diagnostics[f"{family}/effective_token_count_mean"] = average(
            {b: math.fsum(by_example[b]) ** 2 / math.fsum(w * w for w in by_example[b]) for b in present}
        )
    objective = math.fsum(config[field] * terms[name] for name, field in SIX_TERMS.items())
    return Expected(terms, diagnostics, objective, weights)
