"""The tables of text that trials kept: samples, reconstructions, latent traversals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from ablate.report.blocks import Cell, Row, Section, Sentence, Table, make_table
from ablate.report.evidence import BASELINE, Evidence

#: Arms that a table has room for side by side.
MOST_BESIDE = 6


def samples(evidence: Evidence) -> Section:
    """What one trial of each arm wrote, of the first seed that has any: arms side by side where their rows agree."""
    found = _kept(evidence)
    if not found:
        return Section("samples", "Samples", absent="no finished trial kept a table of text")
    names = dict.fromkeys(name for tables in found.values() for name in tables)
    blocks = tuple(_block(evidence, name, {a: tables[name] for a, tables in found.items() if name in tables})
                   for name in names)  # fmt: skip
    text = f"One trial of each arm, of seed {_seed(evidence)}; the files are among each trial's artifacts."
    return Section("samples", "Samples", (Sentence(text),), (), blocks)


def _seed(evidence: Evidence) -> int | None:
    """The lowest seed of which the baseline, or else any arm, has a finished trial that kept a table."""
    complete = evidence.trials.loc[evidence.trials["state"] == "COMPLETE"] if len(evidence.trials) else evidence.trials
    for own in (complete.loc[complete["arm"] == BASELINE] if len(complete) else complete, complete):
        for row in own.sort_values("seed").to_dict("records") if len(own) else []:
            if _files(evidence, str(row["trial_id"])):
                return int(row["seed"])
    return None


def _kept(evidence: Evidence) -> dict[str, dict[str, pd.DataFrame]]:
    """The tables by file name, by arm in plan order."""
    seed = _seed(evidence)
    if seed is None:
        return {}
    chosen = evidence.trials.loc[(evidence.trials["seed"] == seed) & (evidence.trials["state"] == "COMPLETE")]
    trial = dict(zip(chosen["arm"], chosen["trial_id"], strict=True))
    arms = [arm for arm, role in evidence.roles.items() if arm in trial and role in ("baseline", "comparison", "twin")]
    tables = {arm: {path.name: _read(path) for path in _files(evidence, str(trial[arm]))} for arm in arms}
    return {arm: own for arm, own in tables.items() if own}


def _files(evidence: Evidence, trial_id: str) -> list[Path]:
    return sorted((evidence.path / "trials" / trial_id / "texts").glob("*.tsv")) if evidence.path else []


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    except (ValueError, OSError) as error:
        return pd.DataFrame({"error": [f"{path.name} cannot be read: {error}"]})


def _block(evidence: Evidence, name: str, by_arm: dict[str, pd.DataFrame]) -> Table:
    title = Path(name).stem.replace("_", " ").capitalize()
    stem = f"text_{Path(name).stem}"
    whole = pd.concat([own.assign(arm=arm) for arm, own in by_arm.items()], ignore_index=True)
    first = next(iter(by_arm.values()))
    keys = list(first.columns[:-1])
    same = keys and all(
        list(own.columns) == list(first.columns) and own[keys].equals(first[keys]) for own in by_arm.values()
    )
    if not same or len(keys) > 1:
        arm = next(iter(by_arm))
        columns = {column: _column(column, evidence.anchors[arm]) for column in first.columns}
        return make_table(stem, f"{title} of {arm}", first, columns, source=whole, fold=True)
    shown, note = evidence.pictured(MOST_BESIDE - 1, "comparison", "twin")
    beside = [arm for arm in by_arm if arm == BASELINE or arm in shown]
    table = first[keys].join(pd.DataFrame({f"arm {arm}": by_arm[arm].iloc[:, -1] for arm in beside}))
    columns = {key: _column(key, "") for key in keys}
    columns |= {arm: _column(f"arm {arm}", evidence.anchors[arm]) for arm in beside}
    return make_table(stem, title, table, columns, note=note, source=whole, fold=True)


def _column(name: str, href: str) -> Callable[[Row], Cell]:
    return lambda row: Cell(str(row[name]), href=href)
