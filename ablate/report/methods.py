"""The methods paragraph: what a paper has to say of the study, and what it ran on."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ablate.analysis.signflip import EXACT_BLOCKS, MONTE_CARLO_FLIPS
from ablate.report.blocks import Cell, Prose, Section, Sentence, make_table
from ablate.report.evidence import Evidence
from ablate.report.looks import seed_stages


def methods(evidence: Evidence) -> Section:
    """A paragraph with seeds, tests, corrections and versions, and the facts of the study."""
    facts = pd.DataFrame(_flat(evidence.facts), columns=["fact", "value"])
    prose = Prose("methods", " ".join(_sentences(evidence)))
    table = make_table(
        "facts",
        "Versions, machine and reference",
        facts,
        {"fact": lambda row: Cell(str(row["fact"])), "value": lambda row: Cell(str(row["value"]))},
        fold=True,
    )
    blocks = (prose, table) if len(facts) else (prose,)
    return Section("methods", "Methods, ready for a paper", (), (), blocks)


def looks(evidence: Evidence) -> Section:
    """Every time outcomes were looked at."""
    table = pd.DataFrame(
        [(look.time, len(look.seeds), look.outcomes) for look in evidence.looks],
        columns=["time", "planned_seeds", "outcomes"],
    )
    if table.empty:
        return Section("looks", "Looks at the outcomes", absent="no report has shown an outcome yet")
    kept = "" if evidence.path is not None else " A study without a run folder keeps no record of earlier ones."
    shown = make_table(
        "looks",
        "Reports that showed outcomes",
        table,
        {
            "made": lambda row: Cell(str(row["time"])),
            "planned seeds": lambda row: Cell(str(row["planned_seeds"])),
            "outcomes": lambda row: Cell(str(row["outcomes"])),
        },
    )
    declared = evidence.spec.analysis.looks
    words = "1 look was" if declared == 1 else f"{declared} looks were"
    text = (
        f"{words} declared (analysis.looks); outcomes were seen at {_listed(seed_stages(evidence.looks))} seeds.{kept}"
    )
    return Section("looks", "Looks at the outcomes", (Sentence(text),), (), (shown,))


def _sentences(evidence: Evidence) -> list[str]:
    spec, primary = evidence.spec, evidence.primary
    seeds = sorted({int(seed) for seed in evidence.trials["seed"]}) if len(evidence.trials) else []
    family = len(evidence.contrasts)
    span = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else ", ".join(map(str, seeds))
    at = "at the end of training" if primary.at == "last" else f"at step {primary.at.partition(':')[2]}"
    text = [
        f"Every arm was trained on the same {len(seeds)} seeds ({span}), which fix initialisation, data order, latent "
        "sampling and dropout by name, so that arms are compared in pairs.",
        f"The primary metric was {primary.name} ({primary.goal}), read {at}"
        + (" on a report split that no choice was made on." if primary.name.startswith("eval/") else "."),
        f"For each of {family} arms we give the mean paired difference to the baseline with a simultaneous "
        f"{100 * (1 - evidence.alpha):.4g} % interval: the difference plus and minus q standard errors, q the quantile "
        "of the largest |t| of the family over sign flips of the centred differences of whole seeds; p values are "
        f"those of the max-T sign-flip test, {_flips(len(seeds))}, which controls the family-wise error at "
        f"{evidence.alpha:.3g}.",
    ]
    if primary.sesoi is not None:
        text.append(
            f"Verdicts were read off the intervals alone with a smallest effect size of interest of {primary.sesoi:g}: "
            "needed (removing the term is worse by more), harmful (better by more), droppable (inside), undecided."
        )
    text.append(
        "A diverged trial counted as an outcome: a verdict stands only where it is the same with the study's largest "
        "difference set against the arm and for it. Holm-adjusted paired t tests and TOST are given beside and decided "
        "nothing; secondary metrics are exploratory."
    )
    stages = seed_stages(evidence.looks)
    if spec.analysis.looks > 1:
        text.append(f"{spec.analysis.looks} looks were planned, each at alpha {evidence.alpha:.3g}.")
    elif evidence.extended:
        text.append(
            f"Seeds were added after outcomes had been seen (at {_listed(stages)} seeds), which was not planned."
        )
    if evidence.changes:
        text.append("Metrics or analysis were changed after results existed, so the verdicts are post hoc.")
    fixed = [name for name in ("data", "split", "reference") if name not in spec.seeds.vary]
    if fixed:
        text.append(f"Intervals are conditional on one {', one '.join(fixed)}.")
    return [*text, *_provenance(evidence)]


def _flips(seeds: int) -> str:
    if seeds <= EXACT_BLOCKS:
        return f"exact over all 2^{seeds} flips"
    return f"over {MONTE_CARLO_FLIPS:,} seeded random flips"


def _provenance(evidence: Evidence) -> list[str]:
    versions = evidence.facts.get("versions")
    text = []
    if isinstance(versions, Mapping) and versions:
        text.append(f"Software: {', '.join(f'{name} {version}' for name, version in versions.items())}.")
    hardware = evidence.facts.get("hardware")
    if isinstance(hardware, Mapping) and hardware:
        text.append(f"Hardware: {', '.join(f'{key} {value}' for key, value in hardware.items() if key != 'host')}.")
    commit = evidence.facts.get("git_commit")
    if isinstance(commit, str) and commit:
        changed = " with uncommitted changes" if evidence.facts.get("git_diff_sha256") else ""
        text.append(f"Code: commit {commit}{changed}.")
    return text


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values))


def _flat(facts: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Facts as `a.b` and value, nested mappings opened."""
    rows: list[tuple[str, str]] = []
    for key, value in facts.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += _flat(value, f"{name}.")
        else:
            rows.append((name, str(value)))
    return rows
