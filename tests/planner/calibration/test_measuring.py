"""A point that fails costs that point; what is left measures on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from calibration_cases import FACTS

torch = pytest.importorskip("torch")
pytest.importorskip("fbgemm_gpu")

from costmodel.domain.plan import ComputeKernel  # noqa: E402
from costmodel.domain.workload import DataType, Optimizer, Pooling  # noqa: E402
from planner.calibration.device import CpuDevice  # noqa: E402
from planner.calibration.measure_dense import _operands, measure_product  # noqa: E402
from planner.calibration.measure_embedding import _CACHE_COUNTS, _CALLS, _LOCATIONS  # noqa: E402
from planner.calibration.measuring import NO_MEMORY, DeviceLostError, Measurer, attempted  # noqa: E402
from planner.calibration.points import EmbeddingPoint, GemmPoint, TableSet, point_key  # noqa: E402
from planner.calibration.records import Failure, MeasurementJournal, Record, keys, read_measurements  # noqa: E402

POINT = GemmPoint(m=16, n=16, k=16, data_type=DataType.FP32)


class LostDevice(CpuDevice):
    def synchronize(self) -> None:
        raise RuntimeError("an illegal memory access was encountered")


def failing(error: Exception) -> Measurer:
    def measure(*_: object) -> Record:
        raise error

    return Measurer(CpuDevice(2**20), more={"gemm": measure})


@pytest.mark.parametrize("error", [NotImplementedError, AssertionError, ValueError])
def test_a_missing_kernel_costs_its_point(error: Callable[[str], Exception]) -> None:
    found = attempted(failing(error("no such\nkernel")), POINT, CpuDevice(2**20))
    assert isinstance(found, Failure)
    assert found.reason.endswith("no such kernel")


def test_memory_may_be_there_another_time() -> None:
    found = attempted(failing(torch.OutOfMemoryError("no")), POINT, CpuDevice(2**20))
    assert found == Failure(point=POINT, reason=NO_MEMORY)


def test_a_lost_device_ends_the_process() -> None:
    with pytest.raises(DeviceLostError) as raised:
        attempted(failing(RuntimeError("bad kernel")), POINT, LostDevice(2**20))
    assert str(raised.value.__cause__) == "bad kernel"


def test_a_failure_is_read_back_and_counts_as_tried(tmp_path: Path) -> None:
    failure = Failure(point=POINT, reason="RuntimeError: no")
    journal = MeasurementJournal(tmp_path / "mine.jsonl", FACTS)
    journal.append(failure)
    again = read_measurements(tmp_path / "mine.jsonl")
    assert again is not None
    assert (again.records, again.failures) == ((), (failure,))
    assert keys(again.failures) == {point_key(POINT)}


@pytest.mark.parametrize("transposed", ["", "a", "b"])
@pytest.mark.parametrize("num_products", [1, 3])
def test_products_are_measured_as_a_step_stores_them(transposed: str, num_products: int) -> None:
    point = replace(POINT, n=8, num_products=num_products, transposed=transposed)
    left, right = _operands(point, CpuDevice(2**20))
    batch = (3,) if num_products > 1 else ()
    assert (left.shape, right.shape) == ((*batch, 16, 16), (*batch, 16, 8))
    assert (left.is_contiguous(), right.is_contiguous()) == (transposed != "a", transposed != "b")
    assert measure_product(point, CpuDevice(2**20)).seconds["product"] > 0


def test_tables_stay_in_memory_for_the_points_of_one_set() -> None:
    tables = TableSet(
        num_embeddings=(100, 50), embedding_dims=(8, 8), data_type=DataType.FP32,
        optimizer=Optimizer.SGD, compute_kernel=ComputeKernel.FUSED,
    )  # fmt: skip
    measurer = Measurer(CpuDevice(2**20))
    records = []
    for weighted in (False, True):
        point = EmbeddingPoint(
            tables=tables, num_samples=4, pooling_factors=(2.0, 1.0), zipf=(0.0, 1.0),
            weighted=weighted,
        )  # fmt: skip
        records.append(measurer.measure(point))
        kernel = measurer._kernel
    assert all(set(record.seconds) == {"forward", "backward"} for record in records)
    assert records[1].facts["num_lookups"] == [8, 4]
    assert measurer._kernel is kernel
    measurer.measure(POINT)
    assert measurer._kernel is None


def test_fp8_products_run_where_torch_has_them() -> None:
    point = GemmPoint(m=32, n=48, k=64, data_type=DataType.FP8)
    found = attempted(Measurer(CpuDevice(2**20)), point, CpuDevice(2**20))
    if isinstance(found, Failure):
        pytest.skip(found.reason)
    assert found.seconds["product"] > 0
    assert measure_product(point, CpuDevice(2**20)).repeats >= 5


def test_places_and_counters_are_those_of_fbgemm() -> None:
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import UVMCacheStatsIndex

    assert {EmbeddingLocation[name].name for name in _LOCATIONS.values()} == set(
        _LOCATIONS.values()
    )
    assert {PoolingMode[pooling.name].name for pooling in Pooling} == {"SUM", "MEAN", "NONE"}
    assert UVMCacheStatsIndex.num_calls == _CALLS
    assert {UVMCacheStatsIndex(place).name for place in _CACHE_COUNTS.values()} == {
        "num_unique_indices",
        "num_unique_misses",
    }
