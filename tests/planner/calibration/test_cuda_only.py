"""What only a GPU does, against stand-ins that take the arguments of the real thing."""

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("fbgemm_gpu")

from calibration_cases import GPU_SETS  # noqa: E402
from fbgemm_gpu import split_table_batched_embeddings_ops_training as fbgemm  # noqa: E402

from costmodel.base.units import MIB  # noqa: E402
from costmodel.domain.plan import ComputeKernel  # noqa: E402
from costmodel.domain.workload import DataType, Pooling  # noqa: E402
from planner.calibration import measure_dense, measure_embedding  # noqa: E402
from planner.calibration.device import CpuDevice  # noqa: E402
from planner.calibration.measure_dense import _fp8_product  # noqa: E402
from planner.calibration.measure_embedding import TableKernel  # noqa: E402
from planner.calibration.points import EmbeddingPoint, GemmPoint, TableSet  # noqa: E402
from planner.calibration.records import Record  # noqa: E402
from planner.calibration.timing import Timing  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

Real = fbgemm.SplitTableBatchedEmbeddingBagsCodegen


class CudaAlike(CpuDevice):
    """A core that says it runs by itself."""

    @property
    def synchronous(self) -> bool:
        return False


class FakeTables:
    """FBGEMM's module on a GPU: looks nothing up, and counts as its caches do."""

    def __init__(self, *arguments: object, **more: object) -> None:
        given = inspect.signature(Real.__init__).bind(self, *arguments, **more).arguments
        self.places = {place.name for _, _, place, _ in given["embedding_specs"]}
        self.computes = {compute.name for *_, compute in given["embedding_specs"]}
        self.given, self.resets = given, 0
        self.seen: list[int] = []
        self.columns = sum(dim for _, dim, *_ in given["embedding_specs"])

    def __call__(self, ids: "Tensor", offsets: "Tensor", weights: "Tensor | None") -> "Tensor":
        inspect.signature(Real.forward).bind(self, ids, offsets, weights)
        self.seen.append(ids.data_ptr())
        return torch.zeros(4, self.columns, requires_grad=True) * 2

    def split_embedding_weights(self) -> "list[Tensor]":
        return [torch.zeros(2, 2)]

    def split_optimizer_states(self) -> "list[tuple[Tensor, ...]]":
        return [(torch.zeros(2),)]

    def reset_uvm_cache_stats(self) -> None:
        self.resets = len(self.seen)

    def get_uvm_cache_stats(self) -> "Tensor":
        counts = torch.zeros(6)
        for index, each in ((fbgemm.UVMCacheStatsIndex.num_calls, 1),
                            (fbgemm.UVMCacheStatsIndex.num_unique_indices, 30),
                            (fbgemm.UVMCacheStatsIndex.num_unique_misses, 7)):  # fmt: skip
            counts[index] = each * (len(self.seen) - self.resets)
        return counts


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeTables]:
    found: list[FakeTables] = []

    def codegen(*arguments: object, **more: object) -> FakeTables:
        found.append(FakeTables(*arguments, **more))
        return found[-1]

    monkeypatch.setattr(fbgemm, "SplitTableBatchedEmbeddingBagsCodegen", codegen)
    monkeypatch.setattr(measure_embedding, "_BUDGET", 0.0)
    return found


def measured(tables: TableSet) -> Record:
    point = EmbeddingPoint(tables=tables, num_samples=4, pooling_factors=(2.0,), zipf=(0.0,))
    return TableKernel(tables, CudaAlike(MIB)).measure(point)


@pytest.mark.parametrize("tables", GPU_SETS)
def test_tables_are_where_their_kernel_has_them(made: list[FakeTables], tables: TableSet) -> None:
    record = measured(tables)
    places = {
        ComputeKernel.FUSED: "DEVICE", ComputeKernel.FUSED_UVM: "MANAGED",
        ComputeKernel.FUSED_UVM_CACHING: "MANAGED_CACHING",
    }  # fmt: skip
    assert made[0].places == {places[tables.compute_kernel]}
    assert made[0].computes == {"CUDA"}
    assert made[0].given["pooling_mode"].name == tables.pooling.name
    assert set(record.seconds) == {"forward", "backward"}


def test_misses_are_counted_of_batches_after_the_cache_is_filled(made: list[FakeTables]) -> None:
    cached = next(s for s in GPU_SETS if s.compute_kernel is ComputeKernel.FUSED_UVM_CACHING)
    record = measured(replace(cached, pooling=Pooling.SUM))
    assert (record.facts["unique_ids"], record.facts["unique_misses"]) == (30, 7)
    assert made[0].resets == 10
    assert made[0].given["cache_load_factor"] == cached.cache_load_factor
    assert made[0].given["gather_uvm_cache_stats"]


def test_only_products_that_ask_for_tf32_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def timed(*_: object, **__: object) -> dict[str, Timing]:
        asked.append(torch.backends.cuda.matmul.allow_tf32)
        return {"product": Timing(seconds=1.0, wall=1.0, spread=0.0, repeats=1)}

    monkeypatch.setattr(measure_dense, "repeated", timed)
    for data_type in (DataType.TF32, DataType.FP32):
        point = GemmPoint(m=2, n=2, k=2, data_type=data_type)
        measure_dense.measure_product(point, CpuDevice(MIB))
        assert not torch.backends.cuda.matmul.allow_tf32
    assert asked == [True, False]


def test_products_of_eight_bits_come_out_in_sixteen() -> None:
    point = GemmPoint(m=16, n=32, k=64, data_type=DataType.FP8)
    found: Any = _fp8_product(point, CpuDevice(MIB))()
    assert (tuple(found.shape), found.dtype) == ((16, 32), torch.bfloat16)
