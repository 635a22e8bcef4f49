"""A study that has nothing to do with the loss stack: what a random forest needs for digits.

`ablate run examples/sklearn_model.yaml`. Designs, runner and analysis ask only for a function and a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from ablate.workloads.contract import Trial

DEFAULTS = {
    "trees": 60,
    "bootstrap": True,
    "max_features": 0.125,
    "min_samples_leaf": 1,
    "principal_components": 0,
}


def train(config: Mapping[str, Any] = DEFAULTS, trial: Trial | None = None) -> dict[str, float]:
    """Fit a forest under the trial's seed; the split is the same in every trial."""
    trial = trial or Trial(seed=0)
    images, digits = load_digits(return_X_y=True)  # comes with scikit-learn
    x, x_test, y, y_test = train_test_split(images, digits, test_size=0.4, random_state=0, stratify=digits)
    seed = trial.stream_seed("forest") % 2**32
    forest = RandomForestClassifier(
        config["trees"],
        bootstrap=config["bootstrap"],
        max_features=config["max_features"],
        min_samples_leaf=config["min_samples_leaf"],
        random_state=seed,
    )
    components = config["principal_components"]
    model = make_pipeline(PCA(components, random_state=seed), forest) if components else forest
    probabilities = model.fit(x, y).predict_proba(x_test)
    return {
        "eval/log_loss": float(log_loss(y_test, probabilities)),
        "eval/error_rate": float((probabilities.argmax(1) != y_test).mean()),
    }


if __name__ == "__main__":
    print(train())
