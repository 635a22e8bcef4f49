"""A tiny study: sequences, a reference and a model that train in a fraction of a second."""

import copy

import pytest

from ablate.workloads.synthetic_sequences.config import Config
from ablate.workloads.synthetic_sequences.workload import prepare

TINY = {
    "data": {
        "examples": 48,
        "select_examples": 24,
        "report_examples": 24,
        "motifs": 3,
        "length_buckets": [[2, 3], [5, 7]],
    },
    "reference": {"width": 8, "layers": 1, "steps": 30, "evaluate_every": 10, "batch_size": 16},
    "model": {"width": 8, "layers": 1, "latent_dimensions": 3, "latent_groups": 2, "latent_categories": 3},
    "training": {"steps": 12, "batch_size": 16},
}
EVALUATION = {"every": 0.25, "iwae_samples": 4, "iwae_examples": 10}


def merged(into, changes):
    for key, value in changes.items():
        into[key] = merged(into.get(key, {}), value) if isinstance(value, dict) else value
    return into


def tiny(**changes):
    """The whole tiny configuration, sections changed as given."""
    return Config.model_validate(merged(copy.deepcopy(TINY), changes)).model_dump(mode="json")


@pytest.fixture(scope="session")
def shared_dir(tmp_path_factory):
    """A folder with the reference table of the tiny study."""
    folder = tmp_path_factory.mktemp("reference")
    prepare(tiny(), folder)
    return folder


@pytest.fixture(scope="session")
def table(shared_dir):
    from ablate.workloads.sequence_vae.reference_table import open_table
    from ablate.workloads.synthetic_sequences.config import prepared_key

    return open_table(prepared_key(tiny()), shared_dir)
