"""Posterior collapse: trials whose z says nothing of x, and the setting that most likely made it so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ablate.analysis.configurations import factor_paths, identity
from ablate.analysis.outcomes import metric_names
from ablate.spec.paths import leaf_paths, value_at, with_value

KL, RATE, DISTORTION = "eval/kl", "eval/rate_per_token", "eval/nll_per_token"
EFFECTIVE_BETA = "train/effective_beta"

PER_UNIT = 0.01
"""KL of a latent dimension or group, nats, under which it counts as the prior."""
SHARE = 0.01
"""Rate over distortion under which z can't change the reconstruction: I(x; z) is at most the rate."""
FALL = 0.01
"""Share of the distortion that it loses in the second half of training where it still falls."""
HIGH_BETA = 1.5
"""beta_eff, or its ratio to the baseline's, from which it is held to weigh too much."""

COLUMNS = [
    "arm", "n", "collapsed", "falling", "kl_per_unit", "rate_share", "effective_beta", "setting", "reason",
]  # fmt: skip


def collapse(
    trials: pd.DataFrame, curves: pd.DataFrame, config: Mapping[str, Any], *, baseline: str = "baseline"
) -> pd.DataFrame:
    """How many COMPLETE trials of each arm ended with a collapsed posterior, and why most likely.

    A posterior is collapsed where, on the held-out split,

        <KL_b> / units < 0.01 nats,  units the latent dimensions or groups, and  rate / distortion < 0.01

    The first is left out where the units aren't known, as for a workload of one's own. The second says that the
    reconstruction is flat in z, whatever its length and however many units share the rate.

    Args:
        trials, curves: the frames of a study.
        config: the baseline's whole configuration.
    Returns: a row an arm: `arm, n, collapsed, falling, kl_per_unit, rate_share, effective_beta, setting, reason`.
        `falling` of the collapsed ones lost over 1 % of their distortion in the second half of training: it may be
        too early to tell. Means over the arm's trials; `setting` and `reason` are "" where none is collapsed. Empty
        where rate or distortion was not measured.
    """
    if not {RATE, DISTORTION} <= set(metric_names(trials)) or not len(trials):
        return pd.DataFrame(columns=COLUMNS)
    arms = {str(arm): _arm(own, curves, _config(own, config)) for arm, own in trials.groupby("arm", sort=False)}
    rows = [
        {"arm": name, "n": arm.n, "collapsed": arm.collapsed, "falling": arm.falling, "kl_per_unit": arm.kl_per_unit,
         "rate_share": arm.rate_share, "effective_beta": arm.effective_beta}
        | dict(zip(("setting", "reason"), _cause(name, arms, baseline), strict=True))
        for name, arm in arms.items()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS)


@dataclass(frozen=True)
class _Arm:
    """What is known of an arm: its whole configuration, counts of its trials, means over them."""

    config: Mapping[str, Any]
    n: int
    collapsed: int
    falling: int
    kl_per_unit: float
    rate_share: float
    effective_beta: float


def _config(own: pd.DataFrame, baseline: Mapping[str, Any]) -> Mapping[str, Any]:
    config = dict(baseline)
    known = set(leaf_paths(config))
    for path in factor_paths(own):
        if path in known:
            config = with_value(config, path, own[f"config.{path}"].iloc[0])
    return config


def _arm(own: pd.DataFrame, curves: pd.DataFrame, config: Mapping[str, Any]) -> _Arm:
    complete = own.loc[own["state"] == "COMPLETE"]
    share = _metric(complete, RATE) / _metric(complete, DISTORTION)
    per_unit = _metric(complete, KL) / (latent_units(config) or math.nan)
    collapsed = (share < SHARE) & ((per_unit < PER_UNIT) | per_unit.isna())
    ids = complete.loc[collapsed, "trial_id"].astype(str)
    return _Arm(
        config,
        len(complete),
        int(collapsed.sum()),
        sum(_still_falls(curves, trial_id) for trial_id in ids),
        float(per_unit.mean()),
        float(share.mean()),
        float(_metric(complete, EFFECTIVE_BETA).mean()),
    )


def _metric(trials: pd.DataFrame, name: str) -> pd.Series[float]:
    column = f"metric.{name}"
    if column not in trials:
        return pd.Series(math.nan, index=trials.index)
    return pd.to_numeric(trials[column], errors="coerce").astype(float)


def _still_falls(curves: pd.DataFrame, trial_id: str) -> bool:
    """Whether the distortion lost more than FALL of its value between the middle of the training and its end."""
    own = curves.loc[(curves["trial_id"].astype(str) == trial_id) & (curves["metric"] == DISTORTION)]
    own = own.sort_values("step")
    late = own.loc[own["step"] >= own["step"].max() / 2, "value"] if len(own) else own["value"]
    return len(late) > 1 and bool(late.iloc[0] - late.iloc[-1] > FALL * abs(late.iloc[0]))


def latent_units(config: Mapping[str, Any]) -> int | None:
    """Latent dimensions, or groups of a discrete latent; None where the configuration names neither."""
    name = "latent_groups" if setting(config, "latent")[1] == "discrete" else "latent_dimensions"
    units = setting(config, name)[1]
    return int(units) if isinstance(units, int | float) and units > 0 else None


def setting(config: Mapping[str, Any], name: str) -> tuple[str, Any]:
    """Path and value of the first setting of that name, in whatever section; "" and None where there is none."""
    path = next((path for path in leaf_paths(config) if path.rpartition(".")[2] == name), "")
    return path, value_at(config, path) if path else None


# --- why ----------------------------------------------------------------------------------------


def _cause(name: str, arms: Mapping[str, _Arm], baseline: str) -> tuple[str, str]:
    """The setting that most likely collapsed an arm, and the reason in words."""
    arm, base = arms[name], arms.get(baseline)
    if not arm.collapsed:
        return "", ""
    if base is not None and base.n and not base.collapsed:
        changed = _changed(arm, base)
        if changed:
            return _of_the_change(changed, arm, base, arms)
    return _of_the_whole(arm)


def _changed(arm: _Arm, base: _Arm) -> list[str]:
    return [
        path
        for path in leaf_paths(arm.config)
        if identity(value_at(arm.config, path)) != identity(value_at(base.config, path))
    ]


def _of_the_change(changed: list[str], arm: _Arm, base: _Arm, arms: Mapping[str, _Arm]) -> tuple[str, str]:
    """The baseline is whole: what differs from it did it. One change that collapses an arm alone goes first."""
    alone = [
        other_path
        for other in arms.values()
        if other.collapsed and len(paths := _changed(other, base)) == 1
        for other_path in paths
        if other_path in changed
        and identity(value_at(other.config, other_path)) == identity(value_at(arm.config, other_path))
    ]
    path = min(alone or changed, key=_suspicion)
    change = f"{path} is {value_at(arm.config, path)}, the baseline's {value_at(base.config, path)}"
    ratio = arm.effective_beta / base.effective_beta if base.effective_beta else math.nan
    if ratio >= HIGH_BETA:
        return path, (
            f"{change}: β_eff is {arm.effective_beta:.3g} instead of {base.effective_beta:.3g}, so the KL weighs "
            f"{ratio:.3g} times as much against the reconstruction"
        )
    others = [other for other in changed if other != path]
    also = f" (so does {', '.join(others)})" if others else ""
    return path, f"{change}; it differs from the baseline{also}, whose posterior did not collapse"


def _suspicion(path: str) -> int:
    """Rank of a setting among those that are known to collapse posteriors."""
    last = path.rpartition(".")[2]
    known = ["beta", "free_bits", "schedule", "token_aggregation", "token_dropout"]
    if last in known:
        return known.index(last)
    return len(known) + (not last.endswith("_weight"))


def _of_the_whole(arm: _Arm) -> tuple[str, str]:
    """The baseline is collapsed too: what its settings say by themselves."""
    beta_path, beta = setting(arm.config, "beta")
    mode_path, mode = setting(arm.config, "token_aggregation")
    bits_path, bits = setting(arm.config, "free_bits")
    effective = arm.effective_beta
    if effective >= HIGH_BETA:
        reason = f"β_eff is {effective:.3g}: the KL weighs {effective:.3g} times what the ELBO charges"
        if mode == "token_mean" and isinstance(beta, int | float) and beta < HIGH_BETA:
            return mode_path, f"{reason}, as token_mean divides the reconstruction by the length and not the KL"
        return beta_path or "beta", f"{reason}; {beta_path or 'beta'} is {beta}"
    unprotected = _unprotected(arm.config)
    if isinstance(bits, int | float) and bits > PER_UNIT:
        rest = f"; {', '.join(unprotected)}" if unprotected else ""
        return bits_path, f"{bits_path} is {bits}, which charges nothing for a rate below it, and it is not used{rest}"
    if not unprotected:
        return "", "no setting stands out; see the learning curves of rate and distortion"
    near = f"β_eff is {effective:.3g}, near the ELBO's 1, and " if math.isfinite(effective) else ""
    path = bits_path or setting(arm.config, "schedule")[0] or setting(arm.config, "token_dropout")[0]
    return path, f"{near}nothing keeps the rate up: {', '.join(unprotected)}"


def _unprotected(config: Mapping[str, Any]) -> list[str]:
    """Settings that leave the posterior to itself."""
    bare = [("free_bits", 0, "no free bits"), ("schedule", "constant", "no warm-up"),
            ("token_dropout", 0, "the decoder reads every token of the prefix")]  # fmt: skip
    found = [(setting(config, name), value, words) for name, value, words in bare]
    return [f"{words} ({path} {shown})" for (path, shown), value, words in found if path and shown == value]
