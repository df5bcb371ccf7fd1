"""The order of two groups' operations is decided by these two groups alone."""

from itertools import combinations

import numpy as np
import pytest
from machines import machine, topology

from costmodel.bounds.paths import StreamOps
from costmodel.bounds.precedence import compatible_ops, heaviest_compatible
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, DenseModel, EmbeddingTable, Pooling, Workload
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.synthesis import Templates

_GROUPS = tuple(
    GroupKey(pooled=True, weighted=False, sharding_type=each)
    for each in (ShardingType.TABLE_WISE, ShardingType.ROW_WISE, ShardingType.DATA_PARALLEL)
)


def _stream_ops(batches: int) -> StreamOps:
    workload = Workload(
        tables=(EmbeddingTable(name="t", num_embeddings=10, embedding_dim=4, pooling_factor=1.0),),
        dense=DenseModel(bottom_mlp=(16,), top_mlp=(16, 1)),
        local_batch_size=8,
        gradient_accumulation_steps=batches,
    )
    kernels = tuple(
        (KernelKey(each is _GROUPS[-1], DataType.FP32, Pooling.SUM),) for each in _GROUPS
    )
    templates = Templates(workload, topology(2, 2, machine()))
    return StreamOps(templates.of(zip(_GROUPS, kernels, strict=True)))


@pytest.mark.parametrize("batches", [1, 2])
def test_what_is_compatible_is_so_in_every_plan_that_has_both(batches: int) -> None:
    ops = _stream_ops(batches).ops
    numbers = list(ops)
    expected = np.ones((len(ops), len(ops)), dtype=np.bool_)
    for size in (1, 2, 3):
        for plan in combinations(_GROUPS, size):
            places = [place for place, n in enumerate(numbers) if ops[n].exists(plan)]
            own = compatible_ops({numbers[place]: ops[numbers[place]] for place in places}, plan)
            expected[np.ix_(places, places)] &= own
    assert not expected.all()
    assert (compatible_ops(ops) == expected).all()


@pytest.mark.parametrize(
    ("weights", "compatible", "expected"),
    [
        ((0.2, 0.3, 0.1), (0b111, 0b111, 0b111), [0, 1, 2]),
        ((0.0, 0.0, 0.0), (0b001, 0b010, 0b100), [2]),
        # the heaviest alone, or the two others together
        ((0.2, 0.4, 0.3), (0b101, 0b010, 0b101), [0, 2]),
        ((0.2, 0.6, 0.3), (0b101, 0b010, 0b101), [1]),
    ],
)
def test_of_sets_that_go_together_the_heaviest_is_kept(
    weights: tuple[float, ...], compatible: tuple[int, ...], expected: list[int]
) -> None:
    assert heaviest_compatible(range(3), weights, compatible) == expected
