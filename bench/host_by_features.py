"""Host time of a pipelined step by the number of its tables: `python -m bench.host_by_features`.

The model of TorchRec's pull request 2916 (``TestSparseNN`` with ``TestOverArchLarge``, half of the
tables weighted), with narrow tables and two samples a rank, so that kernels take next to nothing:
what is left is the Python of ``TrainPipelineSparseDist`` and of KeyedJaggedTensors, which a GPU's
host runs, too. Two gloo ranks on CPU, table-wise; processor time of the thread that issues, which
other processes do not lengthen. With and without autograd's anomaly detection. Writes
``bench/results/host_by_features.json``.
"""

import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from bench.kept import write
from planner.environment.processes import end_now

RESULTS = Path(__file__).parent / "results" / "host_by_features.json"
TABLES = (8, 50, 200, 800)
RANKS, SAMPLES, STEPS, WARM_UP = 2, 2, 25, 4
STAGES = {
    "start_sparse_data_dist": "start to distribute",
    "wait_sparse_data_dist": "distribute",
    "enqueue_batch": "copy",
    "_model_fwd": "forward",
    "_backward": "backward",
    "progress": "step",
}
"""Methods of the pipeline, and what they do."""


def measured(num_tables: int, rank: int) -> dict[str, float]:
    """Return microseconds of the stages of a step, medians."""
    pipeline, batches = _pipeline(num_tables, rank)
    for _ in range(WARM_UP):
        pipeline.progress(batches)
    times: dict[str, list[float]] = {name: [] for name in STAGES.values()}

    def timed(call: Callable[..., Any], taken: list[float]) -> Callable[..., Any]:
        def run(*args: Any, **more: Any) -> Any:  # noqa: ANN401 - the pipeline's own
            begun = time.thread_time()
            made = call(*args, **more)
            taken.append(time.thread_time() - begun)
            return made

        return run

    for method, name in STAGES.items():
        setattr(pipeline, method, timed(getattr(pipeline, method), times[name]))
    for _ in range(STEPS):
        pipeline.progress(batches)
    return {name: round(1e6 * median(taken), 1) for name, taken in times.items()}


def _pipeline(num_tables: int, rank: int) -> tuple[Any, Any]:
    """Return a pipeline around the sharded model, and its batches."""
    import torch
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.test_utils.test_model import (
        ModelInput,
        TestOverArchLarge,
        TestSparseNN,
    )
    from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.optim.keyed import KeyedOptimizerWrapper
    from torchrec.optim.optimizers import in_backward_optimizer_filter

    cpu = torch.device("cpu")
    tables, weighted = (
        [
            EmbeddingBagConfig(
                name=f"{kind}{i}",
                num_embeddings=1000,
                embedding_dim=8,
                feature_names=[f"{kind}{i}"],
            )
            for i in range(num_tables // 2)
        ]
        for kind in ("plain", "weighted")
    )
    torch.manual_seed(0)
    model = TestSparseNN(
        tables=tables, weighted_tables=weighted, dense_device=cpu,
        sparse_device=torch.device("meta"), over_arch_clazz=TestOverArchLarge,
        submodule_kwargs={"over_arch_out_size": 16, "dense_arch_out_size": 16},
    )  # fmt: skip
    sharder = EmbeddingBagCollectionSharder()
    parallel = DistributedModelParallel(
        model,
        device=cpu,
        plan=_table_wise(model, [*tables, *weighted], sharder),
        sharders=[sharder],
    )
    dense = KeyedOptimizerWrapper(
        dict(in_backward_optimizer_filter(parallel.named_parameters())),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    batches = [
        ModelInput.generate(
            batch_size=SAMPLES, world_size=RANKS, num_float_features=10, tables=tables,
            weighted_tables=weighted,
        )[1][rank]
        for _ in range(3)
    ]  # fmt: skip
    return TrainPipelineSparseDist(parallel, dense, cpu), cycle(batches)


def _table_wise(model: Any, tables: list[Any], sharder: Any) -> Any:  # noqa: ANN401 - torchrec's
    import torch.distributed as dist
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
    from torchrec.distributed.planner.types import Topology

    only = ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])
    planner = EmbeddingShardingPlanner(
        topology=Topology(RANKS, "cpu", local_world_size=RANKS),
        constraints={table.name: only for table in tables},
        debug=False,
    )
    return planner.collective_plan(model, [sharder], dist.group.WORLD)


def _rank(rank: int, folder: str) -> None:
    """Measure as one rank; the first one writes what it found."""
    import torch
    import torch.distributed as dist

    def nothing(*_: object) -> None:
        return None

    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS)}
    torch.set_num_threads(1)
    # torch's stand-in for a stream of a CPU has no device
    torch.cpu.current_stream = torch.cuda.current_stream = nothing
    torch.Tensor.record_stream = nothing
    where = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=RANKS)
    rows = []
    for anomalies in (False, True):
        for count in TABLES:
            with torch.autograd.set_detect_anomaly(anomalies):
                row = {"tables": count, "anomaly_detection": anomalies, "us": measured(count, rank)}
            rows.append(row)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(rows), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    end_now()


def main() -> None:
    """Measure, write and print a row for every number of tables."""
    from importlib.metadata import version

    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=_rank, args=(rank, folder)) for rank in range(RANKS)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        rows = json.loads((Path(folder) / "0.json").read_text(encoding="utf-8"))
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, one thread a rank",
        "torch": version("torch"),
        "torchrec": version("torchrec"),
        "rows": rows,
    }
    write(RESULTS, found)
    for row in rows:
        kind = "anomaly detection" if row["anomaly_detection"] else ""
        stages = "  ".join(f"{name} {us / 1e3:.2f}" for name, us in row["us"].items())
        print(f"{row['tables']:4} tables  {stages} ms  {kind}")


if __name__ == "__main__":
    main()
