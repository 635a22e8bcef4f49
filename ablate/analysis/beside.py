"""Tests that stand beside the verdict and decide nothing: paired t with Holm, Benjamini-Hochberg, and TOST."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats
from statsmodels.stats.multitest import multipletests

from ablate.analysis.outcomes import Family, arms_of, outcomes
from ablate.analysis.verdicts import paired_differences

Array = npt.NDArray[np.float64]


def paired_tests(
    trials: pd.DataFrame,
    *,
    metric: str,
    sesoi: float | None,
    baseline: str = "baseline",
    family: Family = "comparison",
) -> pd.DataFrame:
    """Classical paired tests of each arm against the baseline: `arm, t, p_t, p_t_holm, p_t_bh, p_tost`.

    `p_t` is the paired t test, `p_t_holm` its Holm adjustment over the family, `p_t_bh` that of Benjamini and
    Hochberg (for screening: it bounds the share of false finds, not their presence). `p_tost` is the larger of the
    two one-sided t tests against -sesoi and +sesoi: small where the difference is shown to be too small to matter.
    """
    outcome = outcomes(trials, metric)
    arms = arms_of(trials, family, baseline=baseline)
    if not arms or baseline not in outcome.value:
        return pd.DataFrame(columns=["arm", "t", "p_t", "p_t_holm", "p_t_bh", "p_tost"])
    differences = paired_differences(outcome, arms, baseline).to_numpy(dtype=float)
    t, p = one_sample_t(differences)
    return pd.DataFrame(
        {
            "arm": arms,
            "t": t,
            "p_t": p,
            "p_t_holm": adjust(p, "holm"),
            "p_t_bh": adjust(p, "fdr_bh"),
            "p_tost": tost(differences, sesoi) if sesoi is not None else np.nan,
        }
    )


def one_sample_t(differences: Array) -> tuple[Array, Array]:
    """Two-sided t test that the mean of each column is 0, NaN left out; NaN where fewer than 2 values are."""
    return _t(differences, "two-sided")


def tost(differences: Array, sesoi: float) -> Array:
    """Two one-sided tests: p that |mean| >= sesoi, for each column.

    Source: Schuirmann 1987.
    """
    _, above = _t(differences + sesoi, "greater")
    _, below = _t(differences - sesoi, "less")
    return np.maximum(above, below)


def adjust(p: Array, method: str) -> Array:
    """Adjust p values over those that are numbers; the others stay NaN."""
    adjusted = np.full(len(p), np.nan)
    known = ~np.isnan(p)
    if known.any():
        adjusted[known] = multipletests(p[known], method=method)[1]
    return adjusted


def _t(values: Array, alternative: Literal["two-sided", "less", "greater"]) -> tuple[Array, Array]:
    if not len(values):
        return np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    with warnings.catch_warnings():
        # scipy warns of columns with one value or none, and of equal values; they come back as NaN or inf, as wanted
        warnings.simplefilter("ignore", RuntimeWarning)
        found = stats.ttest_1samp(values, 0.0, nan_policy="omit", alternative=alternative)
        return np.asarray(found.statistic, dtype=float), np.asarray(found.pvalue, dtype=float)
