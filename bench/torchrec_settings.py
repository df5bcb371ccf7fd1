"""What settings of TorchRec change in the predicted step: 16 tables of 2 M x 128 on 8 H100.

python -m bench.torchrec_settings

Each row sets one thing that TorchRec's planner can be told, and plans anew.
"""

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import (
    CommType,
    QCommsConfig,
    get_qcomm_codecs_registry,
)
from torchrec.distributed.planner.types import CustomTopologyData, ParameterConstraints, Topology
from torchrec.distributed.types import CacheParams
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.types import DataType

from costmodel.base.units import GIB, MS
from planner.torchrec import IterationTimePlanner, Solution

TABLES, ROWS, DIM, GPUS, BATCH, IDS = 16, 2_000_000, 128, 8, 16_384, 20.0
SEARCH_SECONDS = 3.0


def main() -> None:
    """Print a row for each setting."""
    logging.disable(logging.WARNING)
    for name, solution in cases():
        plan = solution.plan
        caches = sorted({t.cache_load_factor for t in plan.tables if t.cache_load_factor})
        own = sorted({t.cache_load_factor or 0.0 for t in solution.workload.tables} - {0.0})
        held = f", caches {caches or own}" if "fused_uvm_caching" in name else ""
        print(f"{name:44} {solution.step_time / MS:8.3f} ms{held}")


def cases() -> Iterator[tuple[str, Solution]]:
    """Yield the solution of every case."""
    yield "nothing set", solved()
    yield "qcomm: FP16 forward, BF16 backward", solved(sharder=_coded())
    yield "output_dtype FP16", solved(output_dtype=DataType.FP16)
    for share in (0.2, 0.4, 0.6):
        cache = CacheParams(load_factor=share)
        yield (
            f"fused_uvm_caching, load_factor {share}",
            solved(compute_kernels=["fused_uvm_caching"], cache_params=cache),
        )
    yield "fused_uvm_caching, no load_factor", solved(compute_kernels=["fused_uvm_caching"])
    apart = _topology(local_world_size=2)
    yield "4 hosts of 2 GPUs, qcomm", solved(topology=apart, sharder=_coded())
    yield "4 hosts of 2 GPUs", solved(topology=_topology(local_world_size=2))
    yield (
        "4 hosts of 2 GPUs, pod_size 4",
        solved(topology=_topology(local_world_size=2, pod_size=4)),
    )
    caps = [int(cap * GIB) for cap in (80, 80, 80, 80, 80, 80, 80, 2)]
    uneven = CustomTopologyData(data={"hbm_cap": caps}, world_size=GPUS)
    yield "rank 7 has 2 GiB", solved(topology=_topology(custom_topology_data=uneven))
    yield "unpooled", unpooled(use_index_dedup=False)
    yield "unpooled, use_index_dedup", unpooled(use_index_dedup=True)


def solved(
    topology: Topology | None = None,
    sharder: Any = None,  # noqa: ANN401 - a ModuleSharder
    **constraint: Any,  # noqa: ANN401 - of ParameterConstraints
) -> Solution:
    """Return what the planner makes of the tables, pooled."""
    model = EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(
                name=f"t{i}", num_embeddings=ROWS, embedding_dim=DIM, feature_names=[f"f{i}"]
            )
            for i in range(TABLES)
        ],
        device=torch.device("meta"),
    )
    return _solved(model, topology, sharder or EmbeddingBagCollectionSharder(), constraint)


def unpooled(*, use_index_dedup: bool) -> Solution:
    """Return what the planner makes of the tables, unpooled."""
    model = EmbeddingCollection(
        tables=[
            EmbeddingConfig(
                name=f"t{i}", num_embeddings=ROWS, embedding_dim=DIM, feature_names=[f"f{i}"]
            )
            for i in range(TABLES)
        ],
        device=torch.device("meta"),
    )
    return _solved(model, None, EmbeddingCollectionSharder(use_index_dedup=use_index_dedup), {})


def _solved(
    model: torch.nn.Module, topology: Topology | None, sharder: object, constraint: dict[str, Any]
) -> Solution:
    planner = IterationTimePlanner(
        topology or _topology(),
        BATCH,
        constraints={
            f"t{i}": ParameterConstraints(pooling_factors=[IDS], **constraint)
            for i in range(TABLES)
        },
        hardware="h100-sxm",
        timeout_seconds=SEARCH_SECONDS,
        debug=False,
    )
    planner.plan(model, [sharder])
    if planner.solution is None:
        raise RuntimeError("nothing was planned")
    return planner.solution


def _topology(**settings: Any) -> Topology:  # noqa: ANN401 - of Topology
    return Topology(
        world_size=GPUS,
        compute_device="cuda",
        hbm_cap=80 * GIB,
        ddr_cap=256 * GIB,
        created_by_factory=True,
        **settings,
    )


def _coded() -> EmbeddingBagCollectionSharder:
    config = QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.BF16)
    return EmbeddingBagCollectionSharder(qcomm_codecs_registry=get_qcomm_codecs_registry(config))


if __name__ == "__main__":
    main()
