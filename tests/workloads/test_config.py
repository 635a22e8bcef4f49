"""The configuration type: defaults, what it refuses, and that it agrees with the loss stack."""

from dataclasses import fields

import annotated_types
import pytest
from pydantic import ValidationError

from ablate.workloads import find_workload
from ablate.workloads.sequence_vae import config as sections
from ablate.workloads.sequence_vae.metric_names import DIAGNOSTICS, TERMS
from ablate.workloads.synthetic_sequences.config import Config, data_fingerprint, prepared_key
from losses.config import BetaSchedule, ReconstructionLossConfig, TemperatureSchedule


def test_the_keys_of_the_contract_are_there():
    default = Config().model_dump(mode="json")
    for path in (
        "latent",
        "reference.seed",
        "data.examples",
        "data.seed",
        "reconstruction.raw_weight",
        "reconstruction.token_weight_alpha",
        "reconstruction.token_aggregation",
        "reconstruction.zfree_reference_scale",
        "kl.beta",
        "training.steps",
        "training.batch_size",
        "training.learning_rate",
    ):
        value = default
        for key in path.split("."):
            value = value[key]
    assert default["reconstruction"]["zfree_reference_scale"] == "auto"
    assert default["reconstruction"]["rescale"] is None


@pytest.mark.parametrize(
    ("section", "stack"),
    [
        (sections.Reconstruction, ReconstructionLossConfig),
        (sections.KL, BetaSchedule),
        (sections.Temperature, TemperatureSchedule),
    ],
)
def test_fields_defaults_and_bounds_are_those_of_the_loss_stack(section, stack):
    for field in fields(stack):
        own = section.model_fields[field.name]
        if field.name != "zfree_reference_scale":
            assert own.default == field.default, field.name
            bounds = {
                name: getattr(part, name)
                for part in own.metadata
                for name in ("ge", "gt", "le", "lt")
                if isinstance(part, annotated_types.BaseMetadata) and hasattr(part, name)
            }
            wanted = {name: value for name, value in field.metadata.items() if name != "choices"}
            bounds.pop("le", None) if "le" not in wanted else None  # a file may be held to less than the stack
            assert bounds == wanted, field.name


def test_names_are_those_of_the_loss_stack():
    import losses

    assert tuple(losses.TERMS) == TERMS
    assert tuple(term.weight_field for term in losses.TERMS.values()) == sections.WEIGHT_FIELDS
    assert tuple(sections.Auxiliary.model_fields) == tuple(losses.AUXILIARY_TERMS)
    metrics = find_workload("synthetic_sequences").metrics
    assert {f"train/{name}" for name in losses.AUXILIARY_TERMS} <= metrics
    assert {f"{prefix}/{name}" for prefix in ("train", "eval", "select") for name in (*TERMS, *DIAGNOSTICS)} <= metrics


def test_an_int_stands_for_a_float_and_means_the_same():
    assert Config.model_validate({"kl": {"beta": 1}}) == Config.model_validate({"kl": {"beta": 1.0}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"reconstruction": dict.fromkeys(sections.WEIGHT_FIELDS, 0)},
            "no reconstruction term is on; at least one is above 0 of: raw_weight, distribution_normalized_weight",
        ),
        ({"reconstruction": {"raw_weight": -1}}, "greater than or equal to 0"),
        ({"reconstruction": {"raw_weight": float("nan")}}, "finite"),
        ({"reconstruction": {"raw_weight": float("inf")}}, "finite"),
        ({"reconstruction": {"raw_weight": True}}, "valid number"),
        ({"reconstruction": {"raw_weight": "1"}}, "valid number"),
        ({"reconstruction": {"token_weight_alpha": 101}}, "less than or equal to 100"),
        ({"reconstruction": {"token_aggregation": "sum"}}, "'token_sum' or 'token_mean'"),
        ({"reconstruction": {"rescale": "max"}}, "'baseline'"),
        ({"reconstruction": {"zfree_reference_scale": 0}}, "greater than 0"),
        ({"kl": {"beta": -0.1}}, "greater than or equal to 0"),
        ({"model": {"width": 10, "heads": 4}}, "width 10 is not a multiple of heads 4"),
        ({"reference": {"width": 10, "heads": 4}}, "width 10 is not a multiple of heads 4"),
        ({"data": {"length_buckets": [[3, 2]]}}, "length bucket [3, 2] is empty"),
        ({"data": {"motifs": 9, "symbols": 2, "motif_length": 3}}, "9 distinct motifs asked for"),
        ({"training": {"stepps": 1}}, "Extra inputs are not permitted"),
        ({"latents": "continuous"}, "Extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_is_refused(content, message):
    with pytest.raises(ValidationError) as error:
        Config.model_validate(content)
    assert message in str(error.value)


def test_a_gru_needs_no_heads():
    assert Config.model_validate({"model": {"width": 9, "encoder": "gru", "decoder": "gru"}}).model.width == 9


def test_what_decides_the_data_and_the_table():
    default = Config().model_dump(mode="json")
    assert data_fingerprint({}) == data_fingerprint(default)
    assert prepared_key({}) == prepared_key(default)
    other_model = default | {"model": default["model"] | {"width": 64}, "latent": "discrete"}
    assert prepared_key(other_model) == prepared_key(default)
    other_reference = default | {"reference": default["reference"] | {"seed": 1}}
    assert prepared_key(other_reference) != prepared_key(default)
    assert data_fingerprint(other_reference) == data_fingerprint(default)
    other_data = default | {"data": default["data"] | {"split_seed": 1}}
    assert data_fingerprint(other_data) != data_fingerprint(default)
    assert prepared_key(other_data) != prepared_key(default)
