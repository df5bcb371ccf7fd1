"""Models and plans that the cases share: 16 tables of 2 M x 128 on 8 H100."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from planner.torchrec import IterationTimePlanner

TABLES, ROWS, DIM, GPUS, BATCH, IDS = 16, 2_000_000, 128, 8, 16_384, 20.0
SEARCH_SECONDS = 3.0
MS, GIB = 1e-3, 2**30
META = torch.device("meta")
SHARDERS = (EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder())


def bags(*names: str, rows: int = ROWS, dim: int = DIM, **options: bool) -> EmbeddingBagCollection:
    """Return pooled tables, read by a feature each."""
    tables = [_config(EmbeddingBagConfig, name, rows, dim) for name in names]
    return EmbeddingBagCollection(tables=tables, device=META, **options)


def sequences(*names: str, **settings: Any) -> EmbeddingCollection:  # noqa: ANN401 - of a config
    """Return unpooled tables, read by a feature each."""
    tables = [_config(EmbeddingConfig, name, ROWS, DIM, **settings) for name in names]
    return EmbeddingCollection(tables=tables, device=META)


def _config(kind: Any, name: str, rows: int, dim: int, **settings: Any) -> Any:  # noqa: ANN401
    return kind(
        name=name, num_embeddings=rows, embedding_dim=dim, feature_names=[f"f_{name}"], **settings
    )


def names() -> list[str]:
    """Return the names of the 16 tables."""
    return [f"t{i}" for i in range(TABLES)]


def topology(**settings: Any) -> Topology:  # noqa: ANN401 - of Topology
    """Return 8 GPUs of 80 GiB, in one host unless told otherwise."""
    return Topology(**{
        "world_size": GPUS,
        "compute_device": "cuda",
        "hbm_cap": 80 * GIB,
        "ddr_cap": 256 * GIB,
        "created_by_factory": True,
        **settings,
    })


def constraints(**constraint: Any) -> dict[str, ParameterConstraints]:  # noqa: ANN401
    """Return the same constraint for all 16 tables, beside their pooling factor."""
    return {n: ParameterConstraints(pooling_factors=[IDS], **constraint) for n in names()}


def planned(
    model: nn.Module | None = None,
    sharders: Sequence[Any] = SHARDERS,
    over: Topology | None = None,
    constrained: Mapping[str, Any] | None = None,
    **arguments: Any,  # noqa: ANN401 - of the planner
) -> tuple[Any, Any]:
    """Return a planner that has planned, and the plan."""
    planner = IterationTimePlanner(
        over or topology(),
        BATCH,
        constraints=constraints() if constrained is None else constrained,
        hardware="h100-sxm",
        **{"timeout_seconds": SEARCH_SECONDS, "debug": False, **arguments},
    )
    return planner, planner.plan(model or bags(*names()), sharders)


def step(planner: Any) -> str:  # noqa: ANN401 - an IterationTimePlanner
    """Return the predicted step, as text, and what TorchRec estimates of other tables."""
    other = getattr(planner.solution, "other_time", 0.0)
    more = f" + {other / MS:.3f} ms, TorchRec's estimate" if other else ""
    return f"{planner.solution.step_time / MS:.3f} ms{more}"


def kinds(plan: Any, *tables: str) -> str:  # noqa: ANN401 - a TorchRec plan
    """Return how some tables, or all, are sharded."""
    chosen = [
        each.sharding_type
        for module in plan.plan.values()
        for name, each in module.items()
        if name in tables or not tables
    ]
    counted = Counter(chosen).items()
    return ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in sorted(counted))


@contextmanager
def warnings_kept() -> Iterator[list[str]]:
    """Give the lines of what the planner warns of."""
    lines: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend(record.getMessage().splitlines())

    logger, handler = logging.getLogger("planner"), Keeping(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
