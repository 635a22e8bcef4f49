"""The sections of a report in reading order: evidence in, section out. Each one stands for any state of a study.

To add a table or a figure: one function that returns a Section, and one entry here.
"""

from __future__ import annotations

from collections.abc import Callable

from ablate.report import (
    accounting_sections,
    collapse_sections,
    factor_sections,
    geometry_sections,
    gradient_sections,
    methods,
    outcome_sections,
    sample_sections,
    search_sections,
    verdict_sections,
)
from ablate.report.blocks import Section, Sentence
from ablate.report.evidence import Evidence

SECTIONS: dict[str, Callable[[Evidence], Section]] = {
    "verdicts": verdict_sections.verdicts,
    "arms": outcome_sections.arms,
    "controls": verdict_sections.controls,
    "confirmation": search_sections.confirmation,
    "new-data": search_sections.new_data,
    "pairs": outcome_sections.pairs,
    "rate-distortion": outcome_sections.rate_and_distortion,
    "collapse": collapse_sections.posterior_collapse,
    "curves": outcome_sections.curves,
    "diagnostics": outcome_sections.diagnostics,
    "samples": sample_sections.samples,
    "geometry": geometry_sections.geometry,
    "prediction": geometry_sections.prediction,
    "gradients": gradient_sections.gradients,
    "factorial": factor_sections.factorial,
    "shapley": factor_sections.coalitions,
    "doses": factor_sections.doses,
    "importance": factor_sections.importances,
    "weights": factor_sections.weights,
    "pareto": outcome_sections.fronts,
    "spread": outcome_sections.spread,
    "searches": search_sections.searches,
    "nuisance": search_sections.nuisance,
    "secondary": verdict_sections.secondary,
    "effects": accounting_sections.effect_sizes,
    "accounting": accounting_sections.accounting,
    "looks": methods.looks,
    "methods": methods.methods,
    "trials": outcome_sections.trials,
}


def make_sections(evidence: Evidence) -> list[Section]:
    """Every section with something to show, and one list of what the study has nothing for."""
    made = [make(evidence) for make in SECTIONS.values()]
    absent = tuple(Sentence(f"{section.absent}.", section.title) for section in made if section.absent)
    shown = [section for section in made if not section.absent]
    if absent:
        shown.insert(-1, Section("absent", "Not in this study", absent))
    return shown
