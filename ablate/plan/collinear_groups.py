"""Designs over groups of terms that the data cannot tell apart, once the reference table says which they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ablate.plan.geometry import SECTION, gram_request
from ablate.plan.planning import Planner
from ablate.spec.designs import AUTO
from ablate.spec.models import Design, StudySpec
from ablate.spec.paths import value_at
from ablate.workloads.collinearity import THRESHOLD, term_geometry
from ablate.workloads.contract import Workload
from ablate.workloads.weight_gram import nearest_gram

GROUPS_FILE = "groups.json"
"""In the run folder: the groups of each design that is over some."""


def waits_for_groups(spec: StudySpec) -> bool:
    """Whether a design is over groups that are not known yet."""
    return any(_waits(design) for design in spec.designs)


def with_groups(spec: StudySpec, workload: Workload, run_folder: Path) -> StudySpec:
    """The study with `auto` replaced by the groups at the baseline's setting, where they were measured.

    Within a group every cosine between the weight matrices of two terms is at least THRESHOLD; terms that the baseline
    has off are in no group but those of a search. Without the table they are those that the study last ran with.
    """
    if not waits_for_groups(spec):
        return spec
    plan = Planner(spec, workload).plan({})
    request = gram_request(spec, plan.arms, workload)
    gram = nearest_gram(run_folder / "reference" / request.key, request.settings) if request is not None else None
    if gram is None or not gram.tokens:
        return _as_kept(spec, run_folder)
    terms = term_geometry(gram, 0, THRESHOLD)
    weigh = [group for group in terms.groups if gram.sums[group[0]] > 0]  # a term of weight 0 everywhere is none
    groups = [[f"{SECTION}.{gram.weight_fields[index]}" for index in group] for group in weigh]
    return replace(spec, designs=tuple(_resolved(design, groups, spec) for design in spec.designs))


def keep_groups(spec: StudySpec, run_folder: Path) -> None:
    """Note the groups that a study runs with: the table they come from may be gone when it is read back."""
    known = {design.name: design.settings["groups"] for design in spec.designs if "groups" in design.settings}
    if known and not waits_for_groups(spec):
        (run_folder / GROUPS_FILE).write_text(json.dumps(known, indent=1), encoding="utf-8")


def _as_kept(spec: StudySpec, run_folder: Path) -> StudySpec:
    try:
        kept = json.loads((run_folder / GROUPS_FILE).read_text(encoding="utf-8"))
        groups = {name: tuple(tuple(map(str, group)) for group in found) for name, found in kept.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return spec
    designs = [
        replace(design, settings={**design.settings, "groups": groups[design.name]})
        if _waits(design) and design.name in groups
        else design
        for design in spec.designs
    ]
    return replace(spec, designs=tuple(designs))


def _waits(design: Design) -> bool:
    return design.settings.get("groups") == AUTO


def _resolved(design: Design, groups: Sequence[Sequence[str]], spec: StudySpec) -> Design:
    if not _waits(design):
        return design
    on = [path for path in design.over if value_at(spec.baseline, path) or design.kind == "search"]
    found = [tuple(path for path in group if path in on) for group in groups]
    return replace(design, settings={**design.settings, "groups": tuple(group for group in found if group)})
