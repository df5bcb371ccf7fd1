"""Other groups of a plan's job: how many GPUs, ranks of a group, and steps between averagings."""

from dataclasses import replace

import pytest
from machines import topology

from costmodel.base.limits import MOST_INTERVAL
from costmodel.base.units import GIB
from costmodel.domain.hardware import Topology
from costmodel.domain.replica_groups import ShardingStrategy
from planner.examples import example_workload
from planner.verbs.group_changes import (
    job_of,
    other_intervals,
    other_sizes,
    with_gpus,
    with_group_size,
    with_interval,
)
from planner.verbs.grouping import Grouping

JOB = topology(32, 8)
WORKLOAD = example_workload(12)


def group(size: int, **asked: object) -> Topology:
    (found,) = Grouping(group_size=size, use_inter_host_allreduce=True, **asked).topologies(JOB)  # type: ignore[arg-type]
    return found


def test_more_gpus_are_more_groups_of_the_same_size() -> None:
    found = with_gpus(group(8, sync_interval=5), 64)
    assert (found.world_size, found.num_ranks, found.node_ranks) == (8, 64, 8)
    assert found.replicas is not None
    assert found.replicas.sync_interval == 5
    with pytest.raises(ValueError, match="40 GPUs on 5 nodes are no groups of 16"):
        with_gpus(group(16), 40)


def test_without_groups_all_gpus_are_one() -> None:
    assert with_gpus(JOB, 16) == topology(16, 8)


def test_a_group_of_another_size_is_of_the_same_job() -> None:
    found = with_group_size(group(8, sync_interval=5), 16)
    assert (found.world_size, found.local_world_size, found.num_ranks) == (16, 8, 32)
    assert found == group(16, sync_interval=5)
    assert with_group_size(found, 32) == JOB
    assert job_of(found) == JOB
    with pytest.raises(ValueError, match="has no replicas"):
        with_group_size(JOB, 16)


def test_all_ranks_of_another_group_have_the_memory_of_the_poorest() -> None:
    uneven = replace(group(4), withheld_bytes=(0.0, GIB, 0.0, 0.0))
    assert with_group_size(uneven, 8).withheld_bytes == (GIB,) * 8


def test_another_interval_keeps_all_else() -> None:
    assert with_interval(group(8), 7) == group(8, sync_interval=7)
    with pytest.raises(ValueError, match="averaged in every step"):
        with_interval(group(8, sharding_strategy=ShardingStrategy.FULLY_SHARDED), 7)


def test_a_longer_interval_is_tried_if_there_may_be_one() -> None:
    assert list(other_intervals(group(8, sync_interval=5))) == [50]
    assert list(other_intervals(group(8, sync_interval=MOST_INTERVAL))) == []
    assert list(other_intervals(group(8, sharding_strategy=ShardingStrategy.FULLY_SHARDED))) == []
    assert list(other_intervals(JOB)) == []


def test_half_and_twice_the_size_are_tried_if_there_may_be_such_groups() -> None:
    assert list(other_sizes(WORKLOAD, group(8))) == [4, 16]
    assert list(other_sizes(WORKLOAD, group(2))) == [4]
    assert list(other_sizes(WORKLOAD, group(16))) == [8, 32]
    assert list(other_sizes(WORKLOAD, JOB)) == []
    gpu = JOB.hardware.gpu
    room = WORKLOAD.weight_bytes / 8
    small = replace(JOB.hardware, gpu=replace(gpu, memory_bytes=room))
    assert 4 not in list(other_sizes(WORKLOAD, replace(group(8), hardware=small)))
