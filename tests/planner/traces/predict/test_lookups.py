"""Lookups of traces, timed by the tables of a workload."""

from dataclasses import replace

import pytest
from execution_trace_files import LOOKUP, EtMaker, floats, ids, sharded_step, tensor

from costmodel.base.errors import InputError
from costmodel.domain.workload import DenseModel, EmbeddingTable, Workload
from costmodel.kernels.embedding import embedding_estimate
from planner.files.profiles import load_profile
from planner.traces.execution.operator_trace import operator_traces
from planner.traces.execution.walk import RankWork, rank_work
from planner.traces.predict.lookups import TracedLookups, launch_of

H100 = load_profile("h100-sxm")
TABLES = tuple(
    EmbeddingTable(name=name, num_embeddings=1000, embedding_dim=8, pooling_factor=2)
    for name in "ab"
)
WORKLOAD = Workload(
    local_batch_size=2, tables=TABLES, dense=DenseModel(bottom_mlp=(8,), top_mlp=(1,))
)


def work_of(maker: EtMaker) -> RankWork:
    (trace,) = operator_traces([("rank0.json", maker.document())], "job")
    return rank_work(trace.steps[-1][1])


def launched(*arguments: object, output: object) -> EtMaker:
    maker = EtMaker()
    maker.add(LOOKUP, arguments, [output])  # type: ignore[list-item, arg-type]
    return maker


def test_a_pooled_launch_gathers_a_row_for_every_id() -> None:
    # two tables of 8 columns, 4 samples: 9 offsets; 16 ids
    (item,) = work_of(
        launched(
            floats(16000, storage=1), ids(3, storage=2), ids(16, storage=3), ids(9, storage=4),
            output=floats(4, 16, storage=5),
        )
    ).items  # fmt: skip
    assert item.op is not None
    launch = launch_of(item.op)
    assert launch is not None
    assert (launch.samples, launch.elements) == (4, 16 * 8)


def test_of_rows_that_are_not_pooled_the_output_has_them() -> None:
    maker = launched(floats(800, storage=1), ids(5, storage=2), output=floats(5, 8, storage=3))
    (item,) = work_of(maker).items
    assert item.op is not None
    launch = launch_of(item.op)
    assert launch is not None
    assert (launch.samples, launch.elements) == (0, 40)


def test_a_lookup_of_all_tables_takes_what_they_take() -> None:
    work = work_of(sharded_step())
    times = TracedLookups(WORKLOAD, H100, 2).times(work)
    found = [each for each in times if each is not None]
    forward, backward = embedding_estimate(
        TABLES, num_samples=4, optimizer=WORKLOAD.optimizer, hardware=H100
    )
    assert [each.estimate.seconds for each in found] == pytest.approx([
        forward.seconds,
        backward.seconds,
    ])
    assert [each.family.value for each in found] == ["gathers", "scatters"]


def test_time_beyond_the_launch_grows_with_the_share_of_the_ids() -> None:
    large = tuple(replace(each, num_embeddings=10**7, pooling_factor=50) for each in TABLES)
    quarter, half, whole = (
        embedding_estimate(
            large,
            num_samples=65536,
            optimizer=WORKLOAD.optimizer,
            hardware=H100,
            share=share,
        )[0].seconds
        for share in (0.25, 0.5, 1.0)
    )
    assert whole - half == pytest.approx(2 * (half - quarter))
    assert half < whole


def test_tables_of_another_model_are_refused() -> None:
    works = [work_of(sharded_step())]
    TracedLookups(WORKLOAD, H100, 2).check(works, "job")
    other = replace(WORKLOAD, tables=(replace(TABLES[0], pooling_factor=20),))
    with pytest.raises(InputError, match="gather 128 elements of rows in a step, and the tables"):
        TracedLookups(other, H100, 2).check(works, "job")


def test_a_trace_without_lookups_is_no_ones() -> None:
    maker = EtMaker()
    maker.add("aten::relu", [tensor(100)], [tensor(100, storage=2)])
    lookups = TracedLookups(WORKLOAD, H100, 1)
    lookups.check([work_of(maker)], "job")
    assert lookups.times(work_of(maker)) == [None]
