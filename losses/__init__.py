"""The loss stack: six reconstruction terms, KL and auxiliary terms of sequence VAEs, for any PyTorch trainer.

Names are resolved on first use, so that `losses.config` can be read without torch.
"""

# mypy: implicit-reexport
# ruff: noqa: F401 - type checkers read the names below, `__getattr__` finds them

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from losses.auxiliary import (
        AUXILIARY_TERMS,
        CategoricalPosterior,
        GaussianPosterior,
        auxiliary_losses,
        code_usage,
        dip_vae_i,
        total_correlation,
    )
    from losses.config import BetaSchedule, ReconstructionLossConfig, TemperatureSchedule, TokenAggregation
    from losses.effective_weight import (
        effective_coefficient,
        example_weight_mean,
        mean_effective_token_weight,
        mean_token_weights,
        term_shares,
        zfree_reference_scale,
    )
    from losses.kl import (
        beta_at,
        categorical_kl,
        categorical_kl_per_group,
        free_bits,
        gaussian_kl,
        gaussian_kl_per_dimension,
        temperature_at,
    )
    from losses.linear_nll import LinearNll, linear_masked_token_nll
    from losses.nll import (
        masked_token_nll_per_example,
        masked_token_nll_per_position,
        mean_over_examples,
        token_weighted_masked_nll_per_example,
    )
    from losses.prepared_reference import PreparedReference, concatenate_references
    from losses.reconstruction import (
        TERMS,
        ReconstructionLosses,
        effective_token_weight_table,
        effective_token_weights,
        prepare_reference,
        reconstruction_losses,
        term_weight_matrices,
    )
    from losses.token_weighting import inverse_surprisal_token_weights, surprisal_share_token_weights

_HOME = {
    "AUXILIARY_TERMS": "auxiliary",
    "CategoricalPosterior": "auxiliary",
    "GaussianPosterior": "auxiliary",
    "auxiliary_losses": "auxiliary",
    "code_usage": "auxiliary",
    "dip_vae_i": "auxiliary",
    "total_correlation": "auxiliary",
    "BetaSchedule": "config",
    "ReconstructionLossConfig": "config",
    "TemperatureSchedule": "config",
    "TokenAggregation": "config",
    "effective_coefficient": "effective_weight",
    "example_weight_mean": "effective_weight",
    "mean_effective_token_weight": "effective_weight",
    "mean_token_weights": "effective_weight",
    "term_shares": "effective_weight",
    "zfree_reference_scale": "effective_weight",
    "beta_at": "kl",
    "categorical_kl": "kl",
    "categorical_kl_per_group": "kl",
    "free_bits": "kl",
    "gaussian_kl": "kl",
    "gaussian_kl_per_dimension": "kl",
    "temperature_at": "kl",
    "LinearNll": "linear_nll",
    "linear_masked_token_nll": "linear_nll",
    "masked_token_nll_per_example": "nll",
    "masked_token_nll_per_position": "nll",
    "mean_over_examples": "nll",
    "token_weighted_masked_nll_per_example": "nll",
    "PreparedReference": "prepared_reference",
    "concatenate_references": "prepared_reference",
    "TERMS": "reconstruction",
    "ReconstructionLosses": "reconstruction",
    "effective_token_weight_table": "reconstruction",
    "effective_token_weights": "reconstruction",
    "prepare_reference": "reconstruction",
    "reconstruction_losses": "reconstruction",
    "term_weight_matrices": "reconstruction",
    "inverse_surprisal_token_weights": "token_weighting",
    "surprisal_share_token_weights": "token_weighting",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"losses.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
