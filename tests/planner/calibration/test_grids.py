from collections import Counter
from dataclasses import replace
from itertools import product

from calibration_cases import TARGET

from costmodel.base.units import GB, GIB
from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer, Pooling
from planner.calibration.fit_updates import MOST_POINTS, backward_of
from planner.calibration.grids import CPU_OPTIMIZERS, Grid, embedding_limits, grid_points
from planner.calibration.points import CollectivePoint, EmbeddingPoint, Family, GemmPoint

GPU = replace(
    TARGET,
    on_cpu=False,
    memory_bytes=80 * GIB,
    num_ranks=8,
    optimizers=(Optimizer.SGD, Optimizer.ROWWISE_ADAGRAD, Optimizer.ADAM),
    data_types=(DataType.FP32, DataType.FP16),
)


def _lookups(target: object, grid: Grid) -> list[EmbeddingPoint]:
    points = grid_points(grid, target)[Family.EMBEDDING]  # type: ignore[arg-type]
    return [point for point in points if isinstance(point, EmbeddingPoint)]


def test_the_full_grid_of_a_gpu_covers_what_is_asked_for() -> None:
    points = _lookups(GPU, Grid.FULL)
    in_hbm = [p for p in points if p.tables.compute_kernel is ComputeKernel.FUSED]
    assert len(in_hbm) + _num(points, ComputeKernel.DENSE) >= 2000
    assert min(_num(points, kernel) for kernel in ComputeKernel) >= 100
    rows = [rows for point in points for rows in point.tables.num_embeddings]
    dims = [dim for point in points for dim in point.tables.embedding_dims]
    assert min(rows) <= 2e3
    assert max(rows) >= 5e7
    assert (min(dims), max(dims)) == (4, 512)
    assert {point.tables.optimizer for point in points} == set(GPU.optimizers)
    assert {point.tables.data_type for point in points} == set(GPU.data_types)
    assert max(z for point in points for z in point.zipf) > 1.15
    assert any(len(point.zipf) >= 8 for point in points)
    assert min(point.num_samples for point in points) <= 600
    assert max(point.num_samples for point in points) >= 60000


def _num(points: list[EmbeddingPoint], kernel: ComputeKernel) -> int:
    return sum(point.tables.compute_kernel is kernel for point in points)


def test_a_gpu_measures_weighted_unpooled_and_cached_lookups_and_hundreds_of_tables() -> None:
    points = _lookups(GPU, Grid.FULL)
    fused = [p for p in points if p.tables.compute_kernel is ComputeKernel.FUSED]
    assert 0.1 < sum(p.weighted for p in fused) / len(fused) < 0.2
    unpooled = [p for p in fused if p.tables.pooling is Pooling.NONE]
    assert 0.05 < len(unpooled) / len(fused) < 0.15
    assert all(len(set(p.tables.embedding_dims)) == 1 for p in unpooled)
    assert max(len(p.zipf) for p in points) == 256
    cached = [p for p in points if p.tables.compute_kernel is ComputeKernel.FUSED_UVM_CACHING]
    assert {0.0} != {p.tables.cache_load_factor for p in cached}
    assert all(0.02 <= p.tables.cache_load_factor <= 0.5 for p in cached)
    assert all(p.tables.num_bytes <= 8.1 * GB for p in cached)
    assert not any(point.weighted for point in _lookups(TARGET, Grid.FULL))


def test_a_core_measures_a_few_lookups_of_each_backward_that_is_not_in_the_full_grid() -> None:
    points = [
        p for p in _lookups(TARGET, Grid.QUICK) if p.tables.compute_kernel is ComputeKernel.FUSED
    ]
    found = Counter(backward_of(p.tables) for p in points)
    most = found.pop("rowwise_adagrad")
    named = (optimizer.value for optimizer in CPU_OPTIMIZERS)
    kinds = {f"{name}{kind}" for name, kind in product(named, ("", " unpooled", " fp16"))}
    assert found.keys() == kinds - {"rowwise_adagrad"}
    assert all(8 <= number <= MOST_POINTS < most for number in found.values())


def test_points_stay_within_what_the_device_can_hold_and_do() -> None:
    for target in (TARGET, GPU):
        limits = embedding_limits(target)
        for point in _lookups(target, Grid.FULL):
            widths = point.tables.embedding_dims
            gathered = sum(
                4.0 * dim * point.num_samples * pooling
                for dim, pooling in zip(widths, point.pooling_factors, strict=True)
            )
            least = 0.05 * 4.0 * point.num_samples * sum(widths)  # ids per sample stop at 0.05
            assert gathered <= max(1.05 * limits.gathered_bytes, 1.05 * least)
            assert 4.0 * point.num_samples * sum(widths) <= 1.05 * limits.gathered_bytes
            assert all(dim % 4 == 0 for dim in widths)


def test_replicated_tables_are_small_but_for_a_few_beyond_a_cores_cache() -> None:
    for target in (TARGET, GPU):
        limit = embedding_limits(target).table_bytes / 50
        dense = [
            p.tables.num_bytes
            for p in _lookups(target, Grid.FULL)
            if p.tables.compute_kernel is ComputeKernel.DENSE
        ]
        assert 0 < len(dense) < 400
        large = [size for size in dense if size > 1.01 * limit]
        assert (8 <= len(large) <= MOST_POINTS) if target.on_cpu else not large
        assert max(dense) <= 400e6 or not target.on_cpu


def test_a_grid_is_the_same_every_time() -> None:
    assert grid_points(Grid.QUICK, TARGET) == grid_points(Grid.QUICK, TARGET)


def test_one_process_measures_no_collectives() -> None:
    assert grid_points(Grid.QUICK, replace(TARGET, num_ranks=1))[Family.COLLECTIVE] == ()


def test_messages_divide_among_the_ranks() -> None:
    points = grid_points(Grid.FULL, replace(GPU, num_ranks=6))[Family.COLLECTIVE]
    even = [p for p in points if isinstance(p, CollectivePoint) and not p.focus]
    assert {point.op for point in even} == set(CollectiveOp)
    assert all(point.num_bytes % 24 == 0 for point in even)


def test_products_are_measured_in_every_type_of_a_gpu() -> None:
    points = grid_points(Grid.QUICK, GPU)[Family.GEMM]
    types = [point.data_type for point in points if isinstance(point, GemmPoint)]
    assert {types.count(each) for each in set(types)} == {150}
    assert set(types) == {DataType.FP32, DataType.TF32, DataType.FP16, DataType.BF16}


def test_products_of_a_core_are_those_of_layers_and_interactions() -> None:
    points = [p for p in grid_points(Grid.QUICK, TARGET)[Family.GEMM] if isinstance(p, GemmPoint)]
    single = [point for point in points if point.num_products == 1]
    assert len(single) == 150
    assert {point.transposed for point in single} == {"", "a", "b"}
    batched = [point for point in points if point.num_products > 1]
    assert [point.transposed for point in batched] == 10 * ["b", "", "a"]
    for forward, left, right in zip(*(batched[i::3] for i in range(3)), strict=True):
        assert (forward.m, forward.k) == (forward.n, left.n) == (left.m, left.n)
        assert (right.m, right.n, right.k) == (left.n, left.m, left.k)
    assert not any(
        p.transposed for p in grid_points(Grid.QUICK, GPU)[Family.GEMM] if isinstance(p, GemmPoint)
    )


def test_fp8_products_have_sizes_that_sixteen_divides() -> None:
    points = grid_points(Grid.QUICK, replace(GPU, has_fp8=True))[Family.GEMM]
    small = [p for p in points if isinstance(p, GemmPoint) and p.data_type is DataType.FP8]
    assert len(small) == 150
    assert all(size % 16 == 0 for p in small for size in (p.m, p.n, p.k))
