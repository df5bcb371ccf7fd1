import os
from concurrent.futures.process import BrokenProcessPool

import pytest
from needed import needs_data

from bench.plan_quality import (
    INSTANCES,
    Instance,
    bound,
    isolated,
)
from costmodel.memory.rank_memory import usable_bytes, whole_table_bytes


@pytest.mark.slow
@needs_data
def test_an_instance_is_always_the_same() -> None:
    assert Instance(5, 2).problem().workload == Instance(5, 2).problem().workload


@pytest.mark.slow
@needs_data
def test_tight_memory_is_as_tight_as_it_says() -> None:
    problem = INSTANCES["100x8"].problem()
    workload, topology = problem.workload, problem.topology
    needed = sum(whole_table_bytes(workload, topology, table) for table in workload.tables)
    assert needed / (8 * usable_bytes(workload, topology)) == pytest.approx(0.9)


@pytest.mark.slow
@needs_data
def test_bounds_are_worth_printing() -> None:
    assert bound(Instance(5, 2))["bound_s"] > 1e-4


def test_a_job_that_fails_in_a_process_of_its_own_fails_here() -> None:
    assert isolated(len, "abc") == 3
    with pytest.raises(ZeroDivisionError):
        isolated(divmod, 1, 0)
    with pytest.raises(BrokenProcessPool):
        isolated(os._exit, 1)
