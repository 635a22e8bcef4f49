"""Main effects and pairwise interactions from two-level designs, with seeds as blocks and aliases named."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd

from ablate.analysis.beside import adjust
from ablate.analysis.configurations import Unit, arms_of_design, two_level_units
from ablate.analysis.outcomes import outcomes
from ablate.analysis.signflip import simultaneous

Array = npt.NDArray[np.float64]

COLUMNS = ["term", "order", "aliases", "n_seeds", "effect", "low", "high", "p_value", "p_adjusted", "p_bh"]

_EQUAL = 1e-9


@dataclass(frozen=True)
class _Term:
    """A product of coded factors. `column` is [A]; `aliases` name the terms that these arms can't tell it from."""

    units: tuple[int, ...]
    column: Array
    aliases: tuple[str, ...] = ()


def factorial_effects(
    trials: pd.DataFrame, *, metric: str, design: str, alpha: float = 0.05, baseline: str = "baseline"
) -> pd.DataFrame:
    """Effects of a two-level design (a factorial, a fraction, a screening design, a two-level grid).

    With x_i = -1/2 at the baseline's value of factor i and +1/2 at the other, each seed's outcomes are fitted by
    y = b_0 + sum_i b_i x_i + sum_ij b_ij x_i x_j over the design's arms; b_i is the mean effect of moving i off its
    baseline value, averaged over the other factors, b_ij the change of i's effect when j is off (difference of
    differences). The estimates of the S seeds are the sample: intervals and p values as for contrasts, by sign flips
    of whole seeds, simultaneous over all terms of the table; `p_bh` (Benjamini-Hochberg) is for screening.

    The baseline is in where it is a row of the design, which a full factorial always has; it stands outside a fraction.

    `aliases` names what the arms can't tell from a term: `=` and `= -` for exact aliases up to third order, `~` where
    they are partly confounded. Interactions are estimated where the arms determine them all beside the main effects.
    Seeds that lack too many arms to determine every term are left out.

    Raises: ValueError if a factor takes more than two values, or the arms don't determine the main effects.
    """
    arms = arms_of_design(trials, design)
    units = two_level_units(trials, arms, baseline)
    if not units:
        return pd.DataFrame(columns=COLUMNS)
    if baseline not in arms and len(arms) >= 2 ** len(units) - 2:  # a full factorial, of which the baseline is a row
        arms = [baseline, *arms]
        units = two_level_units(trials, arms, baseline)
    values = outcomes(trials, metric).value.reindex(columns=arms)
    ever = values.notna().any().to_numpy()
    terms = _estimable(units, ever)
    model = np.column_stack([np.ones(len(arms)), *(term.column for term in terms)])
    estimates = np.array([_fit(model, row) for row in values.to_numpy(dtype=float)]).reshape(-1, model.shape[1])
    estimates = estimates[~np.isnan(estimates).any(axis=1), 1:]
    found = simultaneous(estimates, alpha)
    return pd.DataFrame(
        {
            "term": [" × ".join(units[index].name for index in term.units) for term in terms],
            "order": [len(term.units) for term in terms],
            "aliases": ["; ".join(term.aliases) for term in terms],
            "n_seeds": found.n_pairs,
            "effect": found.difference,
            "low": found.low,
            "high": found.high,
            "p_value": found.p_value,
            "p_adjusted": found.p_adjusted,
            "p_bh": adjust(found.p_value, "fdr_bh"),
        }
    )


def interaction_matrix(effects: pd.DataFrame) -> pd.DataFrame:
    """The pairwise interactions of `factorial_effects` as a symmetric table; main effects on the diagonal."""
    names = list(effects.loc[effects["order"] == 1, "term"])
    table = pd.DataFrame(np.nan, index=names, columns=names)
    for row in effects.to_dict("records"):
        pair = str(row["term"]).split(" × ")
        for first, second in {(pair[0], pair[-1]), (pair[-1], pair[0])}:
            table.loc[first, second] = row["effect"]
    return table


def _estimable(units: list[Unit], ever: npt.NDArray[np.bool_]) -> list[_Term]:
    """Main effects, and the interactions where all of them can be determined, with their aliases."""
    coded = [np.where(unit.off, 0.5, -0.5) for unit in units]
    terms = [
        _Term(chosen, np.prod([coded[index] for index in chosen], axis=0))
        for order in (1, 2, 3)
        for chosen in combinations(range(len(units)), order)
    ]
    main = [term for term in terms if len(term.units) == 1]
    if not _determined(main, ever):
        raise ValueError("the finished arms of the design don't determine the main effects")
    pairs = [term for term in _distinct([term for term in terms if len(term.units) <= 2], ever) if len(term.units) == 2]
    kept = [*main, *pairs] if _determined([*main, *pairs], ever) else main
    return [_Term(term.units, term.column, _aliases(term, terms, units, ever)) for term in kept]


def _distinct(terms: list[_Term], ever: npt.NDArray[np.bool_]) -> list[_Term]:
    """The first of each set of terms that these arms can't tell apart; none that is constant."""
    kept: list[_Term] = []
    for term in terms:
        if np.ptp(term.column[ever]) > _EQUAL and all(
            abs(_correlation(term, other, ever)) < 1 - _EQUAL for other in kept
        ):
            kept.append(term)
    return kept


def _determined(terms: list[_Term], ever: npt.NDArray[np.bool_]) -> bool:
    model = np.column_stack([np.ones(int(ever.sum())), *(term.column[ever] for term in terms)])
    return bool(np.linalg.matrix_rank(model) == model.shape[1])


def _correlation(first: _Term, second: _Term, ever: npt.NDArray[np.bool_]) -> float:
    a, b = first.column[ever] - first.column[ever].mean(), second.column[ever] - second.column[ever].mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def _aliases(term: _Term, terms: list[_Term], units: list[Unit], ever: npt.NDArray[np.bool_]) -> tuple[str, ...]:
    found = []
    for other in terms:
        if other.units == term.units or len(other.units) < len(term.units):
            continue
        correlation = _correlation(term, other, ever)
        name = " × ".join(units[index].name for index in other.units)
        if abs(correlation) > 1 - _EQUAL:
            # Coded by halves a product of more factors is smaller: only the sign is the same, not the size.
            found.append(f"{'=' if correlation > 0 else '= -'} {name}")
        elif abs(correlation) > _EQUAL and len(other.units) == 2 and len(term.units) == 1:
            found.append(f"~ {name}")
    return tuple(found)


def _fit(model: Array, outcome: Array) -> Array:
    """Least-squares coefficients of one seed; NaN where its finished arms don't determine them."""
    known = ~np.isnan(outcome)
    if known.sum() < model.shape[1] or np.linalg.matrix_rank(model[known]) < model.shape[1]:
        return np.full(model.shape[1], np.nan)
    return np.asarray(np.linalg.lstsq(model[known], outcome[known], rcond=None)[0], dtype=float)
