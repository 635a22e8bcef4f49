"""The same arms over several studies: each study's difference, the pooled one, and how far they disagree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

from ablate.analysis.effects import effects
from ablate.analysis.outcomes import arm_roles

POOLED_COLUMNS = [
    "arm", "n_studies", "difference", "low", "high", "random_difference", "random_low", "random_high", "q",
    "p_heterogeneity", "i_squared", "tau",
]  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Tables of `compare`.

    Attributes:
        by_study: a row an arm and study: `arm, study, n_pairs, difference, low, high`; marginal t intervals.
        pooled: a row an arm that two studies or more have: the columns of POOLED_COLUMNS.
    """

    by_study: pd.DataFrame
    pooled: pd.DataFrame


def compare(
    studies: Mapping[str, pd.DataFrame], *, metric: str, alpha: float = 0.05, baseline: str = "baseline"
) -> Comparison:
    """Paired differences of the arms that studies have in common, by label.

    With y_s the difference of study s and v_s its squared standard error:
    `difference` pools with weights 1/v_s: the mean effect in these studies; its interval takes t with sum(n_s - 1)
    degrees of freedom, since each v_s is an estimate from few seeds. `random_difference` adds the variance
    between studies tau^2 (Paule and Mandel) to each v_s; its interval is Hartung and Knapp's, never narrower than
    the plain one: the mean effect in studies like these.
    Heterogeneity: Q, its chi^2 p value, I^2 = max(0, 1 - (k-1)/Q), tau.

    Raises: ValueError for fewer than two studies, or as `effects` for a metric that a study lacks.
    """
    if len(studies) < 2:
        raise ValueError(f"compare: got {len(studies)} study; two or more are needed")
    parts = []
    for name, trials in studies.items():
        table = effects(trials, metric=metric, alpha=alpha, baseline=baseline)
        roles = arm_roles(trials, baseline)
        own = table.loc[table["arm"].map(roles).isin(["comparison", "twin"])]
        parts.append(own.assign(study=name, error=own["sd_difference"] / np.sqrt(own["n_pairs"])))
    everything = pd.concat(parts, ignore_index=True)
    order = list(dict.fromkeys(everything["arm"]))
    rows = [_pool(arm, everything.loc[everything["arm"] == arm], alpha) for arm in order]
    pooled = pd.DataFrame([row for row in rows if row is not None], columns=POOLED_COLUMNS)
    everything["position"] = everything["arm"].map({arm: index for index, arm in enumerate(order)})
    by_study = everything.sort_values("position", kind="stable").reset_index(drop=True)
    return Comparison(by_study[["arm", "study", "n_pairs", "difference", "low", "high"]], pooled)


def _pool(arm: str, own: pd.DataFrame, alpha: float) -> dict[str, object] | None:
    own = own.loc[np.isfinite(own["error"]) & (own["error"] > 0)]
    if len(own) < 2:
        return None
    y, variance = own["difference"].to_numpy(dtype=float), own["error"].to_numpy(dtype=float) ** 2
    found = combine_effects(y, variance, method_re="iterated", alpha=alpha)
    fixed = float(found.mean_effect_fe)
    degrees = float((own["n_pairs"] - 1).sum())
    fixed_half = float(stats.t.ppf(1 - alpha / 2, degrees)) * float(np.sqrt(1.0 / (1.0 / variance).sum()))
    # Studies that agree by luck would make the interval of Hartung and Knapp narrower than the pooled one
    error = float(np.sqrt(max(found.var_hksj_re, found.var_eff_w_re)))
    half = float(stats.t.ppf(1 - alpha / 2, len(own) - 1)) * error
    q = float(found.q)
    return {
        "arm": arm,
        "n_studies": len(own),
        "difference": fixed,
        "low": fixed - fixed_half,
        "high": fixed + fixed_half,
        "random_difference": float(found.mean_effect_re),
        "random_low": float(found.mean_effect_re) - half,
        "random_high": float(found.mean_effect_re) + half,
        "q": q,
        "p_heterogeneity": float(stats.chi2.sf(q, len(own) - 1)),
        "i_squared": max(0.0, 1 - (len(own) - 1) / q) if q > 0 else 0.0,
        "tau": float(np.sqrt(max(found.tau2, 0.0))),
    }
