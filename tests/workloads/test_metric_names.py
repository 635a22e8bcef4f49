"""Every metric has its definition in the docs."""

from pathlib import Path

import pytest

from ablate.workloads.sequence_vae.metric_names import EVALUATION, KNOWN_FACTORS, KNOWN_LIKELIHOOD

METRICS = (Path(__file__).parent.parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*EVALUATION, *KNOWN_FACTORS, *KNOWN_LIKELIHOOD])
def test_every_metric_is_defined(name):
    assert any(line.startswith("| `") and f"`{name}`" in line.split(" | ")[0] for line in METRICS.splitlines())
