import pytest

from costmodel.step.graph import NodeKind, Stage
from planner.traces.kineto_events import Activity
from planner.traces.replay.classify import category, stage


def kernel(name: str, kind: str = "kernel") -> Activity:
    return Activity(name=name, kind=kind, stream=7, start=0.0, end=1.0, correlation=1, args={})


@pytest.mark.parametrize(
    ("name", "scopes", "backward", "expected"),
    [
        ("split_embedding_codegen_forward_unweighted", (), False, Stage.LOOKUP_FORWARD),
        ("split_embedding_backward_codegen_adagrad", (), True, Stage.LOOKUP_BACKWARD),
        ("cub::DeviceRadixSort", ("fbgemm::split_embedding_backward_",), True,
         Stage.LOOKUP_BACKWARD),
        ("fbgemm_gpu::permute_2D_lengths_kernel", ("## sparse_data_dist ##",), False,
         Stage.INPUT_DIST),
        ("elementwise", ("Optimizer.step#Adagrad.step",), False, Stage.OPTIMIZER),
        ("volta_sgemm", (), True, Stage.DENSE_BACKWARD),
        ("volta_sgemm", (), False, Stage.DENSE_FORWARD),
    ],
)  # fmt: skip
def test_stages(name: str, scopes: tuple[str, ...], *, backward: bool, expected: Stage) -> None:
    assert stage(kernel(name), scopes, backward=backward) is expected


def test_copies_are_copies_wherever_they_are_made() -> None:
    assert stage(kernel("Memcpy HtoD", "memcpy"), (), backward=False) is Stage.MEMORY_COPY


@pytest.mark.parametrize(
    ("name", "kind", "of", "expected"),
    [
        ("volta_sgemm_128x32_tn", NodeKind.KERNEL, Stage.DENSE_FORWARD, "gemm"),
        ("fbgemm_gpu::permute", NodeKind.KERNEL, Stage.INPUT_DIST, "other"),
        ("CatArrayBatchedCopy", NodeKind.KERNEL, Stage.DENSE_FORWARD, "memory"),
        ("Memset (Device)", NodeKind.COPY, Stage.MEMORY_COPY, "memory"),
        ("ncclKernel_AllReduce", NodeKind.COLLECTIVE, Stage.ALL_REDUCE, "all-reduce"),
        ("dense_embedding", NodeKind.KERNEL, Stage.LOOKUP_BACKWARD, "embedding backward"),
    ],
)
def test_rows_of_a_breakdown(name: str, kind: NodeKind, of: Stage, expected: str) -> None:
    assert category(name, kind, of) == expected
