"""Sentences that say what a table holds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import pandas as pd

from ablate.report.blocks import Row, Sentence
from ablate.report.numbers import fixed, interval, number

MEANING = {
    "needed": "Needed",
    "harmful": "Harmful",
    "droppable": "Droppable",
    "worse": "Worse",
    "better": "Better",
    "equivalent": "Equivalent",
    "undecided": "Undecided",
}


def verdict_sentence(
    row: Row, metric: str, goal: str, sesoi: float | None, together: Mapping[str, str] | None = None
) -> Sentence:
    """One plain sentence for one contrast (a row of `contrasts`).

    Args:
        together: what moves with a term, by the term's name in labels.
    """
    about = subject(row["arm"], together or {})
    if math.isnan(row["difference"]):
        text = f"{about} shares no finished seed with the baseline ({row['reason']})."
        return Sentence(text, "Undecided", "undecided") if sesoi is not None else Sentence(text)
    moved = _moved(row["difference"], metric, goal)
    seeds = f"{row['n_pairs']} {'seed' if row['n_pairs'] == 1 else 'seeds'}"
    found = f"{about} {moved}, {interval(row['low'], row['high'])} over {seeds}"
    if sesoi is None:
        return Sentence(f"{found}; no smallest effect of interest was declared, so there is no verdict.")
    return Sentence(f"{found}; {_because(row, sesoi)}.", MEANING[row["verdict"]], row["verdict"])


def summary_sentence(verdicts: Iterable[str]) -> str:
    """How many arms have each verdict."""
    counts = Counter(verdicts)
    named = [f"{counts[name]} {name}" for name in MEANING if counts[name]]
    return f"{sum(counts.values())} arms: {', '.join(named)}." if named else "No arm has a verdict."


def subject(arm: str, together: Mapping[str, str]) -> str:
    """An arm as the subject of a sentence."""
    removed = [part[1:] for part in arm.split(", ") if part.startswith("-")]
    if removed and len(removed) == len(arm.split(", ")):
        named = [f"{name} (with {together[name]})" if name in together else name for name in removed]
        return f"removing {' and '.join(named)}"
    return arm


def _moved(difference: float, metric: str, goal: str) -> str:
    if difference == 0:
        return f"leaves {metric} exactly where it was"
    better = (difference < 0) == (goal == "minimize")
    verb = "lowers" if difference < 0 else "raises"
    return f"{verb} {metric} by {number(abs(difference), 3)} ({'better' if better else 'worse'})"


def _because(row: Row, sesoi: float) -> str:
    size = f"{sesoi:g}"
    match row["verdict"]:
        case "needed" | "worse":
            return f"the whole interval is worse by more than {size}"
        case "harmful" | "better":
            return f"the whole interval is better by more than {size}"
        case "droppable" | "equivalent":
            return f"the whole interval lies within ±{size}, too small to matter"
    if str(row["reason"]).startswith("diverged"):
        return f"{row['reason']} trials, and how they are counted changes the verdict"
    if row["reason"]:
        return f"{row['reason']} (six common seeds are the least that can decide)"
    if row["significant"]:
        return f"the effect is not 0, yet whether it exceeds {size} is open"
    return f"the interval reaches past ±{size}, so more seeds are needed"


def progress_sentence(states: pd.DataFrame) -> str:
    """How many trials ended, and how."""
    total = int(states["n"].sum())
    if total == 0:
        return "The study has no trial."
    complete = int(states["COMPLETE"].sum())
    parts = [f"{complete} of {_trials(total)} complete"]
    failed, diverged = int(states["FAIL"].sum()), int(states["diverged"].sum())
    if diverged:
        parts.append(f"{diverged} diverged")
    if failed - diverged:
        parts.append(f"{failed - diverged} failed")
    for state, word in (("PRUNED", "pruned"), ("RUNNING", "running"), ("WAITING", "still to run")):
        count = int(states[state].sum())
        if count:
            parts.append(f"{count} {word}")
    return ", ".join(parts) + "."


def _trials(count: int) -> str:
    return f"{count} trial" if count == 1 else f"{count} trials"


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{fixed(100 * share, 0)} %"


def coordinates_text(row: Row) -> str:
    """The canonical coordinates of an arm in a line."""
    axes = [f"{number(row[name], 3)}" for name in row if str(name).startswith("direction_")]
    return (
        f"{row['arm']}: β_eff {number(row['beta_eff'], 4)}, scale {number(row['scale'], 4)}, "
        f"{number(row['effective_token_count'], 4)} effective tokens, distance from the baseline "
        f"{number(row['distance'], 3)}, direction ({', '.join(axes)})"
    )
