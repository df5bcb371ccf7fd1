from dataclasses import replace

import pytest
from dense_operators import operator

from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.workload import DataType
from costmodel.kernels.collectives import RankGroup, collective_estimate
from costmodel.kernels.listed_collectives import COLLECTIVE_OPS, collective_of
from costmodel.kernels.operators import listed_estimate, operator_estimate, pass_times
from costmodel.operators.operator_list import BatchSize, DenseOperator, OperatorList, Pass
from planner.files.profiles import load_profile

A100 = load_profile("a100-sxm-80gb")
SLICE, ALL = (6, 5), (24, 5)


def joined(
    name: str, *inputs: tuple[int, ...], output: tuple[int, ...] | None = None, ranks: int = 4
) -> DenseOperator[int]:
    made = operator("", list(inputs), *([output] if output else []))
    return replace(made, name=name, ranks=ranks)


@pytest.mark.parametrize(
    ("given", "op", "num_bytes"),
    [
        (joined("c10d::allreduce_", SLICE, ALL), CollectiveOp.ALL_REDUCE, 4 * 150),
        (joined("_c10d_functional::all_reduce_", SLICE), CollectiveOp.ALL_REDUCE, 4 * 30),
        (
            joined("_c10d_functional::all_gather_into_tensor", SLICE, output=ALL),
            CollectiveOp.ALL_GATHER,
            4 * 120,
        ),
        # in place: the first is what is written
        (joined("c10d::_allgather_base_", ALL, SLICE), CollectiveOp.ALL_GATHER, 4 * 120),
        (joined("c10d::allgather_", *[SLICE] * 5), CollectiveOp.ALL_GATHER, 4 * 120),
        (joined("c10d::_reduce_scatter_base_", SLICE, ALL), CollectiveOp.REDUCE_SCATTER, 4 * 120),
    ],
)
def test_collectives_send_what_nccl_counts(
    given: DenseOperator[int], op: CollectiveOp, num_bytes: float
) -> None:
    assert collective_of(given) == (op, num_bytes, 4)


def test_other_operators_are_none() -> None:
    assert collective_of(operator("relu", [SLICE], SLICE)) is None
    assert collective_of(joined("c10d::broadcast_", SLICE)) is None


@pytest.mark.parametrize(("ranks", "per_node"), [(2, 8), (8, 8), (16, 8), (12, 12)])
def test_they_take_what_the_profile_says_of_that_many_ranks(ranks: int, per_node: int) -> None:
    large = joined("c10d::allreduce_", (1000, 1000), ranks=ranks)
    group = RankGroup(num_ranks=ranks, ranks_per_node=per_node)
    assert listed_estimate(large, DataType.FP32, A100) == collective_estimate(
        CollectiveOp.ALL_REDUCE, 4e6, group, A100
    )


def test_a_pass_has_kernels_and_the_collectives_that_they_wait_for() -> None:
    kernel, sent = operator("relu", [ALL], ALL), joined("c10d::allreduce_", ALL)
    listed = OperatorList(operators=(kernel, sent), recorded=BatchSize(1))
    found, host = pass_times(listed, DataType.FP32, A100)[Pass.FORWARD], A100.host
    assert found.kernels == pytest.approx(
        operator_estimate(kernel, DataType.FP32, A100.gpu).seconds
        + listed_estimate(sent, DataType.FP32, A100).seconds
    )
    ops = COLLECTIVE_OPS * host.op_time + host.listed_time(backward=False)
    assert found.host == pytest.approx(ops + 2 * host.launch_time)
