"""The study file that `ablate init` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from pydantic import BaseModel

from ablate.spec.config_types import annotation_at, members
from ablate.spec.dumping import dump_document
from ablate.spec.paths import leaf_paths, value_at


class Workload(Protocol):
    """What the file says of a workload."""

    @property
    def name(self) -> str:
        """As written under `workload:`."""

    @property
    def config_type(self) -> type[BaseModel] | None:
        """Model of the configuration, or None where it is free."""

    @property
    def primary(self) -> str:
        """The metric that arms are compared by."""


def study_template(workload: Workload | None, settings: Mapping[str, Any] | None = None) -> str:
    """A commented study file: for the loss stack where the workload has it, else for the settings of a function.

    Args:
        settings: of a function of the user's own, with their defaults; without them names to replace are written.
    """
    if settings:
        parts = OWN | _parts(settings)
    elif workload is None or (
        workload.config_type is not None and "reconstruction" in workload.config_type.model_fields
    ):
        parts = LOSS_STACK
        if workload is not None and "path" in members(annotation_at(workload.config_type, ["data"])):
            parts = parts | {"baseline": parts["baseline"].replace(GENERATED, READ)}
    else:
        parts = OWN
    name = workload.name if workload else "synthetic_sequences"
    primary = (workload.primary if workload else "") or parts["primary"]
    goal = "maximize" if any(word in primary.lower() for word in GROWING) else "minimize"
    return TEMPLATE.format(**{**parts, "workload": name, "primary": primary, "goal": goal})


def _parts(settings: Mapping[str, Any]) -> dict[str, str]:
    """What the file says of settings: all of them, the first that can be varied as a factor, others as remarks."""
    levels = dict(_levels(settings))
    lines = [f"{path}: {shown}" for path, shown in levels.items()]
    if not lines:
        return {"baseline": _indented(settings)}
    first = next(iter(levels))
    return {
        "question": f"Does {first} matter?",
        "baseline": _indented(settings),
        "factors": "".join([f"  {lines[0]}\n", *(f"# {line}\n" for line in lines[1:])]),
        "designs": f"  - one_at_a_time: {first}     # each other level, the rest at baseline\n",
    }


def _levels(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Levels to try of each setting that has a size, then of each switch, as the file writes them."""
    values = {path: value_at(settings, path) for path in leaf_paths(settings)}
    for path, value in values.items():
        if isinstance(value, float) and value > 0:
            yield path, "[0.5x, 1x, 2x]     # multiples of the baseline's value"
        elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
            yield path, "[1x, 2x]"
    for path, value in values.items():
        if isinstance(value, bool):
            yield path, "[true, false]"


def _indented(settings: Mapping[str, Any]) -> str:
    text = dump_document(json.loads(json.dumps(settings)))  # a tuple is a list there
    return "".join(f"  {line}\n" for line in text.splitlines())


#: Parts of a metric's name that say that more of it is better.
GROWING = ("accuracy", "acc", "auc", "f1", "score", "r2", "bleu", "mig")


TEMPLATE = """\
# yaml-language-server: $schema=./ablate.schema.json
# The line above gives an editor completion and checks, once `ablate schema > ablate.schema.json` has been run.
#   ablate validate FILE     checks this file
#   ablate plan FILE         shows what it would run, and what it can conclude
#   ablate run FILE          runs what is not on record yet, then builds the report
version: 1
study: {study}             # a-z, 0-9 and -: names the run folder and the records
question: {question}

workload: {workload}
baseline:                        # the reference arm; what is not written here is the workload's own default
{baseline}
factors:                         # what is studied: paths of the baseline; `*` stands for each path it matches
{factors}
designs:                         # which arms there are; the same arm is run once
{designs}
seeds: {{count: 6}}                # the same seeds for every arm; fewer than 6 can reject nothing at alpha 0.05
controls: {{aa: 1}}                # the baseline again with other streams: what chance alone can do

metrics:
  primary: {{name: {primary}, goal: {goal}, sesoi: {sesoi}}}   # sesoi: smallest effect of interest
{secondary}"""

GENERATED = "  data: {examples: 1024, select_examples: 256, report_examples: 256}\n"
READ = "  data: {path: data.txt}         # yours, beside this file: txt, csv, tsv, jsonl or parquet\n"

LOSS_STACK = {
    "study": "first-study",
    "question": "Which reconstruction terms can go without losing 0.02 nats of ELBO per token?",
    "primary": "eval/neg_elbo_per_token",
    "sesoi": "0.02",
    "baseline": """\
  latent: continuous             # or discrete
  data: {examples: 1024, select_examples: 256, report_examples: 256}
  reference: {steps: 400}        # the frozen z-free model that the token weights are made from
  reconstruction:                # weights of the six terms, each with about a sixth of the effective token weight
    raw_weight: 0.167
    distribution_normalized_weight: 1.2
    example_inverse_surprisal_weight: 0.18
    token_weighted_weight: 0.167
    normalized_concentration_corrected_token_weighted_weight: 2.7
    normalized_inverse_surprisal_token_weighted_weight: 0.4
    token_aggregation: token_sum
  kl: {beta: 1.0}
  training: {steps: 200, batch_size: 64, learning_rate: 3.0e-3}
""",
    "factors": """\
  reconstruction.*_weight: {ablate_to: 0, values: [0.5x, 1x, 2x]}     # 0.5x: half the baseline's value
  reconstruction.token_aggregation: [token_sum, token_mean]
# kl.beta: {min: 0.1, max: 4, distribution: log_uniform, levels: 5}   # a range, for one_at_a_time and grid
together: [[reconstruction.raw_weight, reconstruction.distribution_normalized_weight]]   # one term up to a constant
constraints: ["active(reconstruction.*_weight) >= 1"]
""",
    "designs": """\
  - leave_one_out: reconstruction.*_weight              # one term at `ablate_to`, the rest at baseline
  - one_at_a_time: reconstruction.token_aggregation     # each other level, the rest at baseline
# - add_one_in: reconstruction.*_weight                 # one term alone
# - grid: [reconstruction.token_aggregation, kl.beta]   # all combinations
""",
    "secondary": """\
  secondary:
    - {name: eval/rate_per_token}
    - {name: eval/nll_per_token, goal: minimize}
""",
}

OWN = {
    "study": "first-study",
    "question": "Does the learning rate matter?",
    "primary": "loss",
    "sesoi": "0.01",
    "baseline": """\
  learning_rate: 1.0e-2          # your function gets these as `config`
  dropout: 0.1
""",
    "factors": """\
  learning_rate: [0.1x, 1x, 10x]     # multiples of the baseline's value
  dropout: {ablate_to: 0.0}          # the value that takes it out
""",
    "designs": """\
  - leave_one_out: dropout
  - one_at_a_time: learning_rate
""",
    "secondary": "",
}
