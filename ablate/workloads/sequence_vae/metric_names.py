"""The metrics that the sequence VAE reports, by name. Imports no torch."""

from __future__ import annotations

from itertools import combinations

from ablate.workloads.sequence_vae.config import WEIGHT_FIELDS

TERMS = (
    "reconstruction_loss",
    "distribution_normalized_reconstruction_loss",
    "example_inverse_surprisal_weighted_reconstruction_loss",
    "token_weighted_reconstruction_loss",
    "normalized_concentration_corrected_token_weighted_reconstruction_loss",
    "normalized_inverse_surprisal_token_weighted_reconstruction_loss",
)
DIAGNOSTICS = (
    "token_weighted_base_loss",
    "token_concentration_factor",
    "inverse_token_weighted_base_loss",
    "inverse_token_base_scale_factor",
    "token_weighting/weight_max",
    "token_weighting/weight_ratio_max_min",
    "token_weighting/effective_token_count_mean",
    "inverse_token_weighting/weight_max",
    "inverse_token_weighting/weight_ratio_max_min",
    "inverse_token_weighting/effective_token_count_mean",
)
TRAIN = ("objective", "kl", "beta", "effective_beta", "grad_norm", "clip_fraction", "temperature")
EVALUATION = (
    "neg_elbo_per_token",
    "rate_per_token",
    "nll_per_token",
    "nll_per_sequence",
    "kl",
    "elbo",
    "iwae_nll_per_token",
    "zfree_nll_per_token",
    "active_units",
    "token_accuracy",
    "sequence_accuracy",
    "mutual_information",
    "aggregate_posterior_kl",
)
KNOWN_FACTORS = (
    "mig",
    "modularity",
    "dci_disentanglement",
    "dci_completeness",
    "dci_informativeness",
    "sap",
)
KNOWN_LIKELIHOOD = ("zfree_bayes_nll_per_token", "factor_nll_per_token")


def metric_names(auxiliary: tuple[str, ...], *, factors: bool, likelihood: bool) -> frozenset[str]:
    """Every metric of a trial, for a data source with known factors, with an exact likelihood, or neither.

    Those of gradients are reported by the baseline alone, where a study asks for them.
    """
    stack = (*TERMS, *DIAGNOSTICS)
    held_out = (*stack, *EVALUATION, *(KNOWN_FACTORS if factors else ()))
    held_out += KNOWN_LIKELIHOOD if likelihood else ()
    train = (*stack, *auxiliary, *TRAIN)
    return frozenset(
        [f"train/{name}" for name in train]
        + [f"{split}/{name}" for split in ("eval", "select") for name in held_out]
        + [f"gradient_cosine/{first}/{second}" for first, second in combinations(WEIGHT_FIELDS, 2)]
        + ["time/step_s"]
    )
