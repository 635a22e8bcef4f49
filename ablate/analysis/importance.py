"""Which factors the outcome depends on, held against what the same measure makes of shuffled outcomes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from ablate.analysis.configurations import arm_configurations, identity, is_number
from ablate.analysis.outcomes import arms_of, outcomes

Array = npt.NDArray[np.float64]
Method = Literal["ped_anova", "fanova"]

#: Configurations below which no importance is given: a forest or a quantile of so few says nothing.
LEAST_CONFIGURATIONS = 10
#: Shuffles of the null, by method: 19 are the fewest that can tell anything from noise at 5 %, and forests are slow.
SHUFFLES: dict[str, int] = {"ped_anova": 39, "fanova": 19}

COLUMNS = ["factor", "method", "n_configurations", "importance", "null_median", "null_high", "p_adjusted", "noise"]


def importance(
    trials: pd.DataFrame,
    *,
    metric: str,
    goal: str,
    method: Method = "ped_anova",
    alpha: float = 0.05,
    baseline: str = "baseline",
) -> pd.DataFrame:
    """Importance of each factor over all configurations, with a permutation null.

    A configuration's outcome is its mean over seeds, each seed less its own mean. The null shuffles outcomes over
    configurations. Since factors have nulls of different sizes (more levels score higher by chance), each importance
    is measured in its null's median and spread; `p_adjusted` compares that with the largest of all factors in each
    shuffle, and `noise` is true where p_adjusted > alpha: that factor can't be told from noise.
    `null_high` is the factor's own 1-alpha quantile under the null. The test is of the whole outcome, so it errs on the
    side of noise: beside a factor that dominates, fANOVA's shares leave a small true one in the band.

    Returns: a row a factor that varies, most important first; empty below LEAST_CONFIGURATIONS configurations.
    Source: Watanabe, Bansal, Hutter 2023 (PED-ANOVA); Hutter, Hoos, Leyton-Brown 2014 (fANOVA); evaluators of Optuna.
    """
    arms = arms_of(trials, "baseline", "comparison", "search", baseline=baseline)
    values = outcomes(trials, metric).value.reindex(columns=arms)
    score = values.sub(values.mean(axis=1), axis=0).mean(axis=0).dropna()
    configurations = arm_configurations(trials, list(score.index))
    varying = [path for path in configurations if len(set(configurations[path].map(identity))) > 1]
    if len(score) < LEAST_CONFIGURATIONS or not varying:
        return pd.DataFrame(columns=COLUMNS)
    measure = _Measure(configurations[varying], goal, method)
    y = score.to_numpy(dtype=float)
    observed = measure(y)
    rng = np.random.default_rng(0)
    null = np.array([measure(rng.permutation(y)) for _ in range(SHUFFLES[method])])
    centre = np.median(null, axis=0)
    spread = np.maximum(np.quantile(null, 0.84, axis=0) - centre, 1e-12)
    largest = ((null - centre) / spread).max(axis=1)
    exceed = (largest[:, None] >= (observed - centre) / spread).sum(axis=0)
    p = (1 + exceed) / (1 + len(null))
    table = pd.DataFrame(
        {
            "factor": varying,
            "method": method,
            "n_configurations": len(score),
            "importance": observed,
            "null_median": centre,
            "null_high": np.quantile(null, 1 - alpha, axis=0),
            "p_adjusted": p,
            "noise": p > alpha,
        }
    )
    return table.sort_values("importance", ascending=False, kind="stable").reset_index(drop=True)[COLUMNS]


class _Measure:
    """Optuna's importance of fixed configurations as a function of their outcomes [A] -> [K]."""

    def __init__(self, configurations: pd.DataFrame, goal: str, method: Method) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._paths = [str(path) for path in configurations]
        self._method = method
        space = {str(path): _distribution(configurations[path]) for path in configurations}
        self._study = optuna.create_study(direction=goal)
        for row in configurations.to_dict("records"):
            params = {path: _param(row[path], space[path]) for path in self._paths}
            self._study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=0.0))

    def __call__(self, outcomes: Array) -> Array:
        # The study is this object's own and in memory: new outcomes are set on its trials, since a thousand trials
        # added again for each shuffle would cost more than all the forests.
        for trial, value in zip(self._study.get_trials(deepcopy=False), outcomes, strict=True):
            trial.value = float(value)
        found = self._evaluator().evaluate(self._study)
        return np.array([float(found.get(path, 0.0)) for path in self._paths])

    def _evaluator(self) -> Any:
        import optuna

        if self._method == "fanova":
            return optuna.importance.FanovaImportanceEvaluator(n_trees=16, max_depth=6, seed=0)
        return optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)


def _distribution(values: pd.Series[Any]) -> Any:
    import optuna

    if all(is_number(value) for value in values):
        return optuna.distributions.FloatDistribution(float(min(values)), float(max(values)))
    return optuna.distributions.CategoricalDistribution(sorted({repr(value) for value in values}))


def _param(value: Any, distribution: Any) -> Any:
    return float(value) if hasattr(distribution, "low") else repr(value)
