"""What the rank with most ids makes longer, beside lengths drawn for every rank."""

from dataclasses import replace

import numpy as np
import pytest
from machines import machine, topology
from plans import BATCH, named, plan, table, workload

from costmodel.domain.hardware import Device
from costmodel.domain.lengths import fullest_batch
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import Pooling, Workload
from costmodel.engine.objective import Objective
from costmodel.step.step_operations import StepOperations
from costmodel.step.synthesis import step_operations

RANKS = 8
IDS, STD = 10.0, 30.0
PLACES = (0, 1, 2, 3, 4, 5, 6, 7)
TW, RW, DP = ShardingType.TABLE_WISE, ShardingType.ROW_WISE, ShardingType.DATA_PARALLEL


def tables(std: float, pooling: Pooling = Pooling.SUM) -> Workload:
    names = (table(f"t{i}", ids=IDS, pooling_std=std, pooling=pooling) for i in PLACES)
    return workload(*names)


def made(work: Workload, kind: ShardingType, places: tuple[int, ...] = PLACES) -> StepOperations:
    own = {"t" + str(i): (kind, (place,) if kind is TW else ()) for i, place in enumerate(places)}
    ranks = topology(RANKS)
    return step_operations(work, ranks, plan(work, ranks, own))


def drawn_ids(draws: int = 2000) -> np.ndarray:
    """Return the ids of every table in every rank's batch, shape (draws, ranks, tables)."""
    shape = (IDS / STD) ** 2
    size = (draws, RANKS, len(PLACES))
    return np.random.default_rng(0).gamma(BATCH * shape, IDS / shape, size)


def largest_message(ids: np.ndarray, places: tuple[int, ...]) -> float:
    """Return the most ids that a rank sends or gets, averaged over draws."""
    to = np.eye(RANKS)[list(places)]
    received = ids.sum(axis=1) @ to
    return float(np.maximum(received.max(axis=1), ids.sum(axis=2).max(axis=1)).mean())


@pytest.mark.parametrize(
    ("places", "error"), [(PLACES, 0.06), ((0, 0, 0, 1, 1, 2, 2, 3), 0.06), ((0,) * 8, 0.02)]
)
def test_ids_exchanged_as_drawn(places: tuple[int, ...], error: float) -> None:
    (even,) = named(made(tables(0.0), TW, places), "table_wise ids")
    (uneven,) = named(made(tables(STD), TW, places), "table_wise ids")
    exact = largest_message(drawn_ids(), places) * 8
    assert uneven.num_bytes.max() == pytest.approx(exact, rel=error)
    assert uneven.num_bytes.max() > even.num_bytes.max()


def test_outputs_of_own_ids_as_drawn() -> None:
    # sequences: a rank gets back a vector of 64 numbers for each of its ids
    (sent,) = named(made(tables(STD, Pooling.NONE), TW), "unpooled table_wise outputs")
    exact = largest_message(drawn_ids(), PLACES) * 64 * 4
    assert sent.num_bytes.max() == pytest.approx(exact, rel=0.06)


def test_pooled_outputs_are_as_many_as_ever() -> None:
    for kind in (TW, RW):
        even, uneven = (made(tables(std), kind) for std in (0.0, STD))
        name = f"{kind} outputs"
        assert [float(op.num_bytes.max()) for op in named(even, name)] == [
            float(op.num_bytes.max()) for op in named(uneven, name)
        ]


def test_lookups_of_all_ranks_samples_are_as_long_as_ever() -> None:
    even, uneven = (made(tables(std), TW) for std in (0.0, STD))
    for name in ("table_wise lookup", "table_wise lookup backward"):
        (one,), (other,) = named(even, name), named(uneven, name)
        assert one.seconds.tolist() == other.seconds.tolist()


def test_replicated_tables_look_the_fullest_batch_up() -> None:
    even = made(tables(0.0), DP)
    uneven = made(tables(STD), DP)
    more = replace(tables(0.0), tables=tuple(
        replace(each, pooling_factor=IDS * fullest_batch(tables(STD), RANKS))
        for each in tables(0.0).tables
    ))  # fmt: skip
    name = "data_parallel lookup backward"
    (as_many,) = named(made(more, DP), name)
    (one,), (other,) = named(even, name), named(uneven, name)
    assert other.seconds.max() == pytest.approx(as_many.seconds.max(), rel=1e-9)
    assert other.seconds.max() > one.seconds.max()


@pytest.mark.parametrize("device", list(Device))
def test_a_spread_never_shortens_a_step(device: Device) -> None:
    ranks = topology(4, hardware=machine(device=device))
    steps = []
    for spread in (0.0, 0.05, 0.5):
        work = replace(tables(0.0), length_spread=spread)
        placed = plan(work, ranks, {f"t{i}": (TW, (i % 4,)) for i in PLACES})
        steps.append(Objective(work, ranks).step_time(placed))
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
