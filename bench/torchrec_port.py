"""The port of TorchRec's planner beside the planner: `python -m bench.torchrec_port [--write]`.

Both plan the same problems; where the planner is cut by its limit, the port is stopped after as
many proposals, and run to its end besides. Equal means every shard of every table: type, kernel,
rank and offset. Needs torchrec.

    python -m bench.torchrec_port --cases "mlperf 8" uvm --write
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from bench.choice import FOLDER, GPUS
from bench.kept import parser_of, row_by_row
from bench.plan_quality import Instance, filled, isolated
from bench.population import Nature, PopulationInstance
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import MS, Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Interaction,
    Optimizer,
    Pooling,
    Workload,
)
from planner.files.profiles import load_profile
from planner.files.workload_reading import load_workload
from planner.search.baseline import DEFAULT_BASELINE
from planner.search.plugins import TORCHREC, load_sharder
from sharders.problem.sharding_problem import Budget, SearchResult, Sharder, ShardingProblem

WORKLOADS = Path(__file__).parent / "workloads"
RESULTS = Path(__file__).parent / "results" / "torchrec_port.json"
HARDWARE = "h100-sxm"
THEIR_LIMIT: Seconds = 60.0
"""CPU seconds for TorchRec to propose; enumerating before, and the last proposal, come on top."""
PLACES = ((2, 2), (4, 4), (4, 2), (8, 4), (8, 8), (16, 8), (8, 2), (12, 4), (4, 1), (16, 4))
"""Ranks, and ranks of a host, of drawn problems."""


def of_file(path: Path, gpus: int) -> ShardingProblem:
    """Return a workload file's problem on H100s, eight a node."""
    topology = Topology(
        hardware=load_profile(HARDWARE), world_size=gpus, local_world_size=min(8, gpus)
    )
    return ShardingProblem.of(load_workload(path), topology)


def drawn(seed: int) -> ShardingProblem:
    """Draw a small problem in which as much differs as may: everything that TorchRec is told of."""
    draw = Random(seed)  # noqa: S311 - a drawing
    world_size, local = draw.choice(PLACES)
    workload = Workload(
        name=f"mixed {seed}",
        tables=tuple(_table(draw, index) for index in range(draw.randint(1, 14))),
        dense=DenseModel(interaction=Interaction.CAT),
        local_batch_size=draw.choice((1, 17, 512, 4096, 8192)),
        optimizer=draw.choice(list(Optimizer)),
    )
    topology = Topology(
        hardware=load_profile(HARDWARE), world_size=world_size, local_world_size=local
    )
    fill = draw.choice((None, None, 0.2, 0.4))
    return ShardingProblem.of(workload, filled(workload, topology, fill) if fill else topology)


def _table(draw: Random, index: int) -> EmbeddingTable:
    types = list(ShardingType)
    kinds = [*draw.sample(types, draw.randint(1, 4)), ShardingType.TABLE_WISE]
    kernels = [*draw.sample(list(ComputeKernel), draw.randint(1, 3)), ComputeKernel.FUSED]
    features = draw.choice((1, 1, 1, 2, 3))
    return EmbeddingTable(
        name=f"module.table_{index}",
        num_embeddings=int(10 ** draw.uniform(0, 7.3)),
        embedding_dim=draw.choice((4, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024)),
        pooling_factor=draw.choice((0.3, 1.0, 1.0, 2.5, 10.0, 40.0)),
        pooling=draw.choice((Pooling.SUM, Pooling.SUM, Pooling.MEAN, Pooling.NONE)),
        weighted=draw.random() < 0.3,
        data_type=draw.choice((DataType.FP32, DataType.FP16, DataType.BF16, DataType.INT8)),
        sharding_types=tuple(dict.fromkeys(kinds)) if draw.random() < 0.4 else (),
        compute_kernels=tuple(dict.fromkeys(kernels)) if draw.random() < 0.4 else (),
        min_shard_dim=draw.choice((4, 4, 16, 32, 64)),
        optimizer=draw.choice((None, None, *Optimizer)),
        feature_names=tuple(f"f{index}_{n}" for n in range(features)) if features > 1 else (),
        bags_per_sample=draw.choice((1.0, 1.0, 0.5, 2.0)),
    )


def _population(
    nature: Nature, num_tables: int, hardware: str, nodes: int, fill: float | None = None
) -> ShardingProblem:
    """Return a problem of the population, its tables filling another share of the memory."""
    name = f"port {nature}"
    problem = PopulationInstance(name, nature, num_tables, hardware, nodes, 4096).problem()
    if fill is None:
        return problem
    workload = problem.workload
    return ShardingProblem.of(workload, filled(workload, problem.topology, fill))


CASES: Mapping[str, Callable[[], ShardingProblem]] = {
    **{f"mlperf {n}": partial(of_file, WORKLOADS / "dlrm_dcnv2.yaml", n) for n in (8, 16, 64)},
    "mlperf dlrm 8": partial(of_file, WORKLOADS / "dlrm_mlperf.yaml", 8),
    "heavy 4": partial(of_file, WORKLOADS / "heavy_00.yaml", 4),
    "heavy 16": partial(of_file, WORKLOADS / "heavy_05.yaml", 16),
    "light 8": partial(of_file, WORKLOADS / "light_00.yaml", 8),
    **{
        name: partial(of_file, FOLDER / f"{name}.yaml", gpus)
        for name, gpus in GPUS.items()
        if gpus > 2
    },
    **{f"{n}x{w}": Instance(n, w).problem for n, w in ((26, 4), (26, 64), (100, 8), (400, 16))},
    "856x64": partial(of_file, WORKLOADS / "open_856.yaml", 64),
    "constraints": partial(_population, Nature.CONSTRAINED, 30, "h100-sxm", 2, 0.3),
    "sequences": partial(_population, Nature.SHARED, 60, "a100-sxm-80gb", 2),
    "uvm": partial(_population, Nature.TIERS, 24, "h100-sxm", 2, 0.8),
    "tight": partial(_population, Nature.TIGHT, 60, "a100-sxm-40gb", 2),
    "barely": partial(_population, Nature.BARELY, 40, "v100-nvlink", 1),
    "uneven": partial(_population, Nature.UNEVEN, 60, "h200-sxm", 4),
    **{f"mixed {seed}": partial(drawn, seed) for seed in range(8)},
}


@dataclass(slots=True)
class Stop:
    """Ends a search by the process's CPU clock, or when it has been asked so often."""

    end: Seconds = inf
    most: float = inf
    asked: int = 0
    stopped_at: int | None = None
    """How often it had been asked when it first said so."""

    def __call__(self) -> bool:
        """Return whether to stop."""
        self.asked += 1
        over = self.asked >= self.most or time.process_time() > self.end
        if over and self.stopped_at is None:
            self.stopped_at = self.asked
        return over


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a planner made of a case."""

    cpu: Seconds
    result: SearchResult | None
    """None: it finds no plan."""

    def record(self) -> dict[str, Any]:
        """Return what is kept of it."""
        found = self.result
        made = {"step_s": found.step_time, "proposals": found.evaluated} if found else {}
        return {"cpu_s": round(self.cpu, 3), **made}


def run(sharder: Sharder, problem: ShardingProblem, stop: Stop) -> Run:
    """Run a planner on its own, and take its CPU time."""
    result = None
    start = time.process_time()
    with suppress(InfeasibleError):
        result = sharder.shard(problem, Budget(should_stop=stop), Random(0))  # noqa: S311 - unused
    return Run(cpu=time.process_time() - start, result=result)


def compared(name: str) -> dict[str, Any]:
    """Return both planners' runs of a case, and how many tables they shard differently."""
    problem = CASES[name]()
    _ = problem.options, problem.rooms  # not theirs to compute
    limit = Stop(end=time.process_time() + THEIR_LIMIT)
    port = load_sharder(DEFAULT_BASELINE)
    theirs = run(load_sharder(TORCHREC), problem, limit)
    ours = run(port, problem, Stop())
    cut = limit.stopped_at is not None
    beside = run(port, problem, Stop(most=limit.stopped_at or inf)) if cut else ours
    return {
        "tables": len(problem.workload.tables),
        "gpus": problem.topology.world_size,
        "hosts": problem.topology.num_nodes,
        "different": different(theirs.result, beside.result),
        "cut": cut,
        "theirs": theirs.record(),
        "ours": ours.record(),
        **({"beside": beside.record()} if cut else {}),
    }


def different(theirs: SearchResult | None, ours: SearchResult | None) -> int:
    """Return how many tables are sharded differently; all, if there is only one plan."""
    if theirs is None or ours is None:
        return sum(len(each.plan.tables) for each in (theirs, ours) if each is not None)
    pairs = zip(theirs.plan.tables, ours.plan.tables, strict=True)
    return sum(one != other for one, other in pairs)


def show(name: str, row: Mapping[str, Any]) -> None:
    """Print one case's line."""
    same = "the same plan" if not row["different"] else f"{row['different']} tables differ"
    if "step_s" not in row["theirs"]:
        same = "no plan of either" if not row["different"] else "no plan of theirs"
    steps = " / ".join(_step(row[which]) for which in ("theirs", "ours"))
    print(
        f"{name:<14}{row['tables']:>5} x {row['gpus']:<4}{same:<18}{steps:>24}"
        f"{row['theirs']['cpu_s']:9.2f} / {row['ours']['cpu_s']:.2f} CPU s"
        f"{'   cut, stopped alike' if row['cut'] else ''}",
        flush=True,
    )


def _step(record: Mapping[str, Any]) -> str:
    return f"{record['step_s'] / MS:.3f} ms" if "step_s" in record else "-"


def main() -> None:
    """Run, print, and with --write keep the results, row by row."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    args = parser.parse_args()
    for sharder in (TORCHREC, DEFAULT_BASELINE):
        load_sharder(sharder)  # importing torch is not timed
    row_by_row(RESULTS, args.cases, partial(isolated, compared), show, keep=args.write)


if __name__ == "__main__":
    main()
