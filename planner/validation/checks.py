"""Checks before anything starts that plans can be trained here."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from costmodel.base.errors import InfeasibleError, InputError, PlanMismatchError, Problem
from costmodel.base.units import GIB, KIB, Bytes
from costmodel.domain.codecs import wire_type
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import DataType, DenseModel, LaunchMode, Pipeline, Pooling, Workload
from costmodel.memory.rank_memory import memory_per_rank
from planner.files.plans import PlanFile
from planner.planned.notes import untrained
from planner.show.format import count

RANK_BYTES: Bytes = 0.75 * GIB
"""Resident bytes of Python, torch, FBGEMM and TorchRec in every rank: 0.6 GiB (x86-64, torch
2.13)."""
_MEMORY = Path("/proc/meminfo")


def check_workload(workload: Workload, source: str) -> None:
    """Raise InputError with all parts of a workload that cannot be trained here."""
    problems = [Problem(message=text, hint=hint) for text, hint in _untrainable(workload)]
    if problems:
        raise InputError(source, problems)


def _untrainable(workload: Workload) -> Iterator[tuple[str, str | None]]:
    """Yield what of a workload is not trained here, each with a hint or None."""
    for table in workload.tables:
        if table.pooling is Pooling.NONE:
            yield f"table `{table.name}` is not pooled; only pooled tables are trained", None
        elif table.weighted:
            yield f"table `{table.name}` is weighted; only unweighted tables are trained", None
    if workload.pipeline is Pipeline.DLRM:
        message = "pipeline `dlrm` is plain DLRM, and plans are trained by TorchRec"
        yield message, "set `pipeline` to `none` or `sparse_dist`"
    if workload.pipeline is Pipeline.PREFETCH:
        message = "pipeline `prefetch_sparse_dist` is not trained: only a GPU has UVM caches"
        yield message, "set `pipeline` to `sparse_dist`"
    if any(wire_type(workload, summed=False, backward=backward) for backward in (False, True)):
        yield "quantized communication is not trained", None
    if workload.output_type is not DataType.FP32:
        yield f"output_type `{workload.output_type}` is not trained, only `fp32`", None
    yield from _untrainable_dense(workload.dense)


def _untrainable_dense(dense: DenseModel) -> Iterator[tuple[str, str | None]]:
    if dense.launch is not LaunchMode.EAGER:
        message = f"`launch: {dense.launch}` is not trained, only `eager`"
        yield message, "leave `launch` of the dense model out"
    if dense.operators is not None:
        message = "the dense part is a list of operators, and a model is trained from layers"
        yield message, "give `dense` as `bottom_mlp`, `interaction` and `top_mlp`"
    if dense.fused_interaction:
        yield "TorchRec has no fused interaction", "leave `fused_interaction` out"


def check_same_job(files: Sequence[PlanFile], names: Sequence[str]) -> None:
    """Raise PlanMismatchError unless all plans are for one model and number of ranks.

    The tables' constraints may differ.
    """
    first = files[0]
    for file, name in zip(files, names, strict=True):
        if unconstrained(file.workload) != unconstrained(first.workload):
            raise PlanMismatchError(
                f"`{name}` is for another workload than `{names[0]}`", hint="validate them apart"
            )
        ranks = (file.plan.world_size, file.plan.local_world_size)
        if ranks != (first.plan.world_size, first.plan.local_world_size):
            raise PlanMismatchError(
                f"`{name}` is for {count(ranks[0], 'rank')}, {ranks[1]} to a node, unlike "
                f"`{names[0]}`",
                hint="validate them apart",
            )


def unconstrained(workload: Workload) -> Workload:
    """Return the workload without its name and the tables' constraints."""
    tables = tuple(
        replace(table, sharding_types=(), compute_kernels=(), ranks=(), min_shard_dim=_ANY_DIM)
        for table in workload.tables
    )
    return replace(workload, name="", tables=tables)


_ANY_DIM = 4
"""Narrowest shard of every unconstrained table."""


def check_machine(file: PlanFile, topology: Topology) -> None:
    """Raise InfeasibleError unless this machine has a core or a GPU for every rank, and the memory.

    One machine, whatever the number of nodes planned for: on a CPU nodes are groups of ranks.
    """
    check_plan(file.workload, topology, file.plan)
    if file.replicas is not None:
        raise PlanMismatchError(
            "the plan is for one of several groups of ranks, which are not trained here",
            hint="validate a plan of one group, made without `--replica-group`",
        )
    for note in untrained(file.workload, topology.hardware.device):
        raise InfeasibleError(note)
    if topology.hardware.device is Device.CPU:
        _check_cores(topology)
        _check_pipeline(file.workload.pipeline)
        _check_rows(file)
        _check_memory(file, topology, _available_bytes(), RANK_BYTES)
        return
    _check_gpus(file, topology)


def _check_pipeline(pipeline: Pipeline) -> None:
    if pipeline in {Pipeline.FUSED_SPARSE_DIST, Pipeline.SEMI_SYNC}:
        raise InfeasibleError(
            f"pipeline `{pipeline}` looks batches up beside others, and needs a GPU's streams",
            hint="set `pipeline` to `none` or `sparse_dist`",
        )


def _check_rows(file: PlanFile) -> None:
    for sharding in file.plan.tables:
        for shard in sharding.shards:
            if shard.num_rows == 0:
                raise InfeasibleError(
                    f"table `{sharding.table}` has no rows on rank {shard.rank}, "
                    "and FBGEMM takes no such shard on a CPU",
                    hint="plan again: on CPU such shards are not offered",
                )


def _check_cores(topology: Topology) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if topology.world_size > (cores or 1):
        raise InfeasibleError(
            f"{topology.world_size} ranks need a core each, and there are {cores}",
            hint="ranks that share a core would measure each other",
        )


def _check_memory(file: PlanFile, topology: Topology, free: Bytes | None, overhead: Bytes) -> None:
    held = memory_per_rank(file.workload, topology, file.plan)
    needed = sum(rank.total + rank.host + overhead for rank in held)
    if free is not None and needed > free:
        raise InfeasibleError(
            f"the ranks need {needed / GIB:.1f} GiB in all, and {free / GIB:.1f} GiB are free",
            details=[
                (f"rank {number}", f"{(rank.total + rank.host + overhead) / GIB:.1f} GiB")
                for number, rank in enumerate(held)
            ],
            hint="fewer rows or a smaller local_batch_size make a plan that can be tried here",
        )


def _available_bytes() -> Bytes | None:
    """Return the bytes that could be had without swapping (proc(5)); None: unknown."""
    if not _MEMORY.exists():
        return None
    for line in _MEMORY.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return float(value.split()[0]) * KIB
    return None


def _check_gpus(file: PlanFile, topology: Topology) -> None:
    import torch

    name = topology.hardware.name
    here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if here < topology.world_size:
        raise InfeasibleError(
            f"the plan is for {count(topology.world_size, 'GPU')} ({name}), and this machine has "
            f"{here}",
            hint="for this machine's CPU: `planner calibrate -o cpu.yaml`, then plan and validate "
            "with `--hardware cpu.yaml`",
        )
    free = min(torch.cuda.mem_get_info(index)[0] for index in range(topology.world_size))
    held = memory_per_rank(file.workload, topology, file.plan)
    needed = max(rank.total for rank in held)
    if needed > free:
        raise InfeasibleError(
            f"a rank needs {needed / GIB:.1f} GiB, and a GPU has {free / GIB:.1f} GiB free"
        )
