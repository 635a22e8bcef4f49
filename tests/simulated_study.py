"""A study with a known truth, as the frames that a run leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ablate.spec.models import (
    Analysis,
    Controls,
    Design,
    EarlyStop,
    Evaluation,
    Factor,
    Metric,
    Metrics,
    ReportSettings,
    Run,
    SecondaryMetric,
    Seeds,
    StudySpec,
    Track,
)

WEIGHTS = (
    "raw_weight",
    "distribution_normalized_weight",
    "example_inverse_surprisal_weight",
    "token_weighted_weight",
    "normalized_concentration_corrected_token_weighted_weight",
    "normalized_inverse_surprisal_token_weighted_weight",
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
PRIMARY = "eval/neg_elbo_per_token"
MODE = "reconstruction.token_aggregation"

#: Arm -> true effect on the primary metric; the verdict that a large study reaches at sesoi 0.02.
EFFECTS: dict[str, float] = {
    "baseline": 0.0,
    "-raw_weight": 0.06,
    "-distribution_normalized_weight": 0.0,
    "-example_inverse_surprisal_weight": 0.002,
    "-token_weighted_weight": -0.06,
    "-normalized_concentration_corrected_token_weighted_weight": 0.004,
    "-normalized_inverse_surprisal_token_weighted_weight": 0.02,
    "token_aggregation=token_mean": 0.09,
    "-raw_weight ~rescaled": 0.03,
    "-token_weighted_weight ~rescaled": -0.03,
    "token_aggregation=token_mean ~matched": 0.01,
    "search-1/0": 0.1,
    "aa-1": 0.0,
}


@dataclass
class FakeStudy:
    """The shape of a study: a spec, two frames, a folder, facts."""

    spec: StudySpec
    trials_frame: pd.DataFrame
    curves_frame: pd.DataFrame
    path: Path | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def trials(self) -> pd.DataFrame:
        return self.trials_frame.copy()

    def curves(self) -> pd.DataFrame:
        return self.curves_frame.copy()


def study_spec(count: int = 8, *, question: str = "Which terms can go?", **changes: Any) -> StudySpec:
    """A spec like that of a leave-one-out study over the six weights."""
    paths = [f"reconstruction.{name}" for name in WEIGHTS]
    factors = tuple(Factor(path, "float", 1.0, (1.0, 0.0), ablate_to=0) for path in paths)
    mode = Factor(MODE, "choice", "token_sum", ("token_sum", "token_mean"), choices=("token_sum", "token_mean"))
    values: dict[str, Any] = {
        "study": "which-terms-matter",
        "question": question,
        "workload": "synthetic_sequences",
        "baseline": {"reconstruction": dict.fromkeys(WEIGHTS, 1.0) | {"token_aggregation": "token_sum"}},
        "factors": (*factors, mode),
        "together": (),
        "constraints": (),
        "designs": (Design("leave_one_out", "leave_one_out", tuple(paths)),),
        "seeds": Seeds(count=count),
        "controls": Controls(aa=1, rescaled=True),
        "metrics": Metrics(
            primary=Metric(name=PRIMARY, goal="minimize", sesoi=0.02),
            secondary=(
                SecondaryMetric(name="eval/rate_per_token"),
                SecondaryMetric(name="eval/nll_per_token", goal="minimize"),
                SecondaryMetric(name="eval/mig", goal="maximize"),
            ),
        ),
        "analysis": Analysis(),
        "early_stop": EarlyStop(),
        "evaluation": Evaluation(),
        "run": Run(),
        "track": Track(),
        "report": ReportSettings(),
    }
    return StudySpec(**(values | changes))


def simulate_study(
    *,
    seeds: int = 8,
    effects: Mapping[str, float] = EFFECTS,
    seed_sd: float = 0.05,
    noise_sd: float = 0.006,
    failures: Mapping[tuple[str, int], str] | None = None,
    steps: int = 11,
    extra_metrics: int = 0,
    diagnostics: int = len(DIAGNOSTICS),
    rng_seed: int = 0,
    path: Path | None = None,
    **spec: Any,
) -> FakeStudy:
    """Arms by seeds with effects that are known: value = 2.1 + effect + seed + noise, correlated within a seed.

    Args:
        failures: (arm, seed) -> reason of FAIL, or `WAITING`.
        extra_metrics: how many metrics of pure noise are added.
        diagnostics: how many of the ten are logged.
    """
    rng = np.random.default_rng(rng_seed)
    of_seed = rng.normal(0.0, seed_sd, seeds)
    rows, curves = [], []
    for seed in range(seeds):
        for index, (arm, effect) in enumerate(effects.items()):
            state, reason = _end((failures or {}).get((arm, seed)))
            trial_id = f"{index * 4096 + seed:012x}"
            value = 2.1 + effect + of_seed[seed] + rng.normal(0.0, noise_sd)
            metrics = _metrics(rng, arm, value, extra_metrics, diagnostics)
            if state in ("COMPLETE", "FAIL"):
                curves.append(_curve(rng, trial_id, metrics, steps, cut=state == "FAIL"))
            rows.append(
                {
                    "trial_id": trial_id,
                    "arm": arm,
                    "seed": seed,
                    "replicate": 1 if arm.startswith("aa-") else 0,
                    "designs": _design(arm),
                    "state": state,
                    "reason": reason,
                    **_configuration(arm),
                    **{f"metric.{k}": v if state == "COMPLETE" else np.nan for k, v in metrics.items()},
                    "started": pd.Timestamp("2026-01-05T10:00:00Z") + pd.Timedelta(seconds=7 * len(rows)),
                    "duration_s": 5.0 + rng.random() if state != "WAITING" else np.nan,
                    "mlflow_run_id": f"{index:016x}{seed:016x}",
                }
            )
    frame = pd.concat(curves, ignore_index=True) if curves else empty_curves()
    facts = {"reference_nll_per_token": 2.16, "bayes_nll_per_token": 2.12, "versions": {"torch": "2.13.0"}}
    return FakeStudy(study_spec(seeds, **spec), pd.DataFrame(rows), frame, path, facts)


def empty_curves() -> pd.DataFrame:
    return pd.DataFrame({"trial_id": [], "step": [], "metric": [], "value": []}).astype(
        {"trial_id": str, "step": int, "metric": str, "value": float}
    )


def _end(word: str | None) -> tuple[str, str | None]:
    if word is None:
        return "COMPLETE", None
    return (word, None) if word in ("WAITING", "RUNNING", "PRUNED") else ("FAIL", word)


def _design(arm: str) -> str:
    if arm == "baseline" or arm.startswith("aa-"):
        return "baseline"
    if arm.startswith("search-"):
        return "search-1"
    return "leave_one_out" if arm.startswith("-") else "one_at_a_time"


def _configuration(arm: str) -> dict[str, Any]:
    removed = {part.removeprefix("-").partition(" ~")[0] for part in arm.split(", ") if part.startswith("-")}
    config: dict[str, Any] = {f"config.reconstruction.{w}": 0.0 if w in removed else 1.0 for w in WEIGHTS}
    return config | {f"config.{MODE}": "token_mean" if "token_mean" in arm else "token_sum"}


def _metrics(rng: np.random.Generator, arm: str, value: float, extra: int, diagnostics: int) -> dict[str, float]:
    rate = 0.31 - (0.08 if "token_mean" in arm else 0.0) + rng.normal(0, 0.004)
    metrics = {
        PRIMARY: value,
        "eval/rate_per_token": rate,
        "eval/nll_per_token": value - rate,
        "eval/mig": 0.2 + rng.normal(0, 0.02),
        "eval/active_units": float(rng.integers(3, 6)),
        "train/objective": 12.0 + rng.normal(),
    }
    scale = 0.6 if "token_mean" in arm else 1.0
    for index, name in enumerate(DIAGNOSTICS[:diagnostics]):
        noise = rng.normal(0, 0.02) if name.endswith("loss") else 0.0
        metrics[f"eval/{name}"] = scale * (1.2 + index + noise)
    return metrics | {f"eval/extra_{index}": float(rng.normal()) for index in range(extra)}


def _curve(
    rng: np.random.Generator, trial_id: str, metrics: Mapping[str, float], steps: int, *, cut: bool
) -> pd.DataFrame:
    at = np.linspace(0, 1000, steps).astype(int)[: steps // 2 if cut else steps]
    fall = 1.5 * np.exp(-at / 150.0)
    names = [name for name in metrics if name != "train/objective"]
    values = [metrics[name] + (fall + rng.normal(0, 0.004, len(at))) * (name == PRIMARY) for name in names]
    return pd.DataFrame(
        {
            "trial_id": trial_id,
            "step": np.tile(at, len(names)),
            "metric": np.repeat(names, len(at)),
            "value": np.concatenate(values),
        }
    )
