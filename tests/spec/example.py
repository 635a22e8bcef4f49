"""A workload of the tests' own, and a study file for it: `spec` and `plan` know no built-in workload."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ablate.errors import SpecError
from ablate.spec.loading import load_study
from ablate.spec.models import StudySpec

Weight = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reference(Section):
    seed: Annotated[int, Field(ge=0)] = 0


class Data(Section):
    examples: Annotated[int, Field(ge=1)] = 4096
    seed: Annotated[int, Field(ge=0)] = 0


class Reconstruction(Section):
    raw_weight: Weight = 1.0
    distribution_normalized_weight: Weight = 1.0
    example_inverse_surprisal_weight: Weight = 1.0
    token_weighted_weight: Weight = 1.0
    normalized_concentration_corrected_token_weighted_weight: Weight = 1.0
    normalized_inverse_surprisal_token_weighted_weight: Weight = 1.0
    token_weight_alpha: Annotated[float, Field(ge=0, le=100)] = 1.0
    example_inverse_surprisal_epsilon: Positive = 0.1
    inverse_surprisal_token_weight_epsilon: Positive = 0.1
    zfree_reference_scale: Literal["auto"] | Positive = "auto"
    token_aggregation: Literal["token_sum", "token_mean"] = "token_sum"
    rescale: Literal["baseline"] | None = None
    shares: dict[str, float] | None = None


class KL(Section):
    beta: Weight = 1.0
    schedule: Literal["constant", "linear"] = "constant"
    warmup_steps: int = 0

    @model_validator(mode="after")
    def _warms_up(self) -> "KL":
        if self.schedule == "linear" and self.warmup_steps < 1:
            raise ValueError("a linear schedule needs warmup_steps >= 1")
        return self


class Training(Section):
    steps: Annotated[int, Field(ge=1)] = 1000
    batch_size: Annotated[int, Field(ge=1)] = 64
    learning_rate: Positive = 3.0e-3
    amsgrad: bool = False


class Config(Section):
    latent: Literal["continuous", "discrete"] = "continuous"
    reference: Reference = Reference()
    data: Data = Data()
    reconstruction: Reconstruction = Reconstruction()
    kl: KL = KL()
    training: Training = Training()


@dataclass(frozen=True)
class Workload:
    name: str
    config_type: type[BaseModel] | None = Config
    metrics: frozenset[str] | None = frozenset(
        {"eval/neg_elbo_per_token", "eval/nll_per_token", "eval/rate_per_token", "train/objective"}
    )
    primary: str = "eval/neg_elbo_per_token"
    fingerprint: Callable[[Mapping[str, Any]], str] = lambda config: str(config.get("data"))
    pack: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[Mapping[str, Any]], None] = lambda config: None
    later: Mapping[str, Any] = field(default_factory=dict)


TYPED = Workload("typed")
SELECT = frozenset({"select/neg_elbo_per_token", "select/nll_per_token"})
SEARCHED = Workload("searched", metrics=(TYPED.metrics or frozenset()) | SELECT)
FREE = Workload("free", config_type=None, metrics=None, primary="loss")


def lookup(name: str) -> Workload:
    known = {"typed": TYPED, "free": FREE, "searched": SEARCHED}
    if name not in known:
        raise LookupError("allowed: free, typed or package.module:function")
    return known[name]


STUDY = """\
version: 1
study: which-terms
question: Which reconstruction terms can go?
workload: typed
baseline:
  reconstruction: {raw_weight: 1.0, token_weight_alpha: 1.0}
  kl: {beta: 1.0}
factors:
  reconstruction.*_weight: {ablate_to: 0, values: [0.5x, 1x, 2x]}
  reconstruction.token_aggregation: [token_sum, token_mean]
  kl.beta: {min: 0.5, max: 2, levels: 4}
designs:
  - leave_one_out: reconstruction.*_weight
  - one_at_a_time: [reconstruction.token_aggregation, kl.beta]
metrics:
  primary: {name: eval/neg_elbo_per_token, goal: minimize, sesoi: 0.02}
"""

FREE_STUDY = """\
study: my-own
workload: free
baseline: {rate: 0.1, name: null, flag: false, count: 3, hidden: [32, 32], net: {depth: 2}}
factors:
  rate: [0.1x, 1x, 10x]
designs:
  - one_at_a_time: rate
metrics: {primary: {name: loss}}
"""


class Folder:
    """A folder of study files, loaded by names relative to it."""

    def __init__(self, path, monkeypatch) -> None:
        monkeypatch.chdir(path)
        self.path = path

    def write(self, text: str | bytes, name: str = "s.yaml") -> str:
        content = textwrap.dedent(text).encode() if isinstance(text, str) else text
        (self.path / name).write_bytes(content)
        return name

    def load(self, text: str | bytes, **options: Any) -> StudySpec:
        return load_study(self.write(text), workload_lookup=lookup, **options)

    def problems(self, text: str | bytes, **options: Any) -> list[str]:
        """Every problem of a file, one a line; there has to be one."""
        with pytest.raises(SpecError) as caught:
            self.load(text, **options)
        assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
        return str(caught.value).splitlines()


def edited(*edits: tuple[str, str], text: str = STUDY) -> str:
    """The example with parts of it replaced; each part is there once."""
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def factor_of(spec, path):
    """The factor of that path."""
    (found,) = [factor for factor in spec.factors if factor.path == path]
    return found
