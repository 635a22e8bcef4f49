"""Workers on nodes: what fits where, and what is said where nothing fits."""

import pytest

from ablate.errors import SpecError
from ablate.run.placement import require_resources, workers_on
from ablate.spec.models import Run


def host(**resources):
    return {"Resources": {name: float(value) for name, value in resources.items()}}


SMALL, LARGE, LICENSED = host(CPU=4), host(CPU=8, GPU=2), host(CPU=8, licence=1)


@pytest.mark.parametrize(
    ("asked", "workers"),
    [
        ({"cpu": 1}, [4, 8, 8]),
        ({"cpu": 3}, [1, 2, 2]),
        ({"cpu": 1, "gpu": 0.5}, [0, 4, 0]),
        ({"cpu": 0.5, "gpu": 0.25}, [0, 8, 0]),
        ({"cpu": 1, "licence": 0.25}, [0, 0, 4]),
    ],
)
def test_workers_of_a_node_are_what_its_scarcest_resource_allows(asked, workers):
    assert [workers_on(each, Run(resources=asked)) for each in (SMALL, LARGE, LICENSED)] == workers


@pytest.mark.parametrize(
    ("address", "asked", "hosts", "message"),
    [
        (None, {"gpu": 0.5}, [SMALL], "run.resources.gpu: 0.5 asked for each worker; this machine has 0; "),
        ("auto", {"cpu": 9}, [LARGE], "run.resources.cpu: 9 asked for each worker; the cluster has 8; "),
        ("auto", {"cpu": 9}, [SMALL, LARGE],
         "run.resources.cpu: 9 asked for each worker; no node of the cluster has more than 8; "),
        ("auto", {"gpu": 1.5}, [LARGE], "run.resources.gpu: 1.5 asked for; Ray takes fractions below 1 or whole GPUs"),
        ("auto", {"cpu": 1, "gpu": 1, "licence": 1}, [LARGE, LICENSED],
         "run.resources: cpu: 1, gpu: 1, licence: 1 asked for each worker; no node of the cluster has all of it"),
    ],
)  # fmt: skip
def test_a_worker_that_fits_nowhere_is_refused(address, asked, hosts, message):
    with pytest.raises(SpecError) as caught:
        require_resources(Run(address=address, resources=asked), hosts)
    assert str(caught.value).startswith(message)


def test_a_worker_that_fits_somewhere_is_taken():
    require_resources(Run(address="auto", resources={"cpu": 8, "gpu": 2}), [SMALL, LARGE])
