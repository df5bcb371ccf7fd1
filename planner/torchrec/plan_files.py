"""Plan files of ``planner plan`` for TorchRec models, and plan files made of TorchRec plans."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torchrec.distributed.types import ShardingPlan as TorchRecPlan

from costmodel.base.errors import PlanMismatchError
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import TableSharding
from costmodel.domain.validity import allowed_kernels
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.files.disk import write_text
from planner.files.plan_memory import PlanMemory
from planner.files.plans import PlanFile, dump_plan_file, load_plan_file, plan_text
from planner.torchrec.exchange import (
    DEVICE,
    make_torchrec_plan,
    placed,
    take_torchrec_plan,
    write_torchrec_file,
)
from planner.torchrec.factory import read_factory
from planner.torchrec.model_reading import read_model
from planner.torchrec.modules import ModelReading, full_name
from planner.torchrec.other_tables import only_tables
from planner.torchrec.plan_conversion import let_prefetch
from planner.torchrec.plan_reading import read_torchrec_file

if TYPE_CHECKING:
    from planner.torchrec.solving import Solution


def export_plan(
    path: str | Path,
    target: str | Path,
    *,
    module: str | None = None,
    factory: str | None = None,
    device: str | None = None,
    gpus_per_host: int | None = None,
    file: PlanFile | None = None,
) -> TorchRecPlan:
    """Write a plan file's plan for ``torch.load(target, weights_only=False)``, and return it.

    Parameters
    ----------
    path, target
        The plan file, and the file to write.
    module
        Path of the module that all tables are in, as ``DistributedModelParallel`` sees it.
    factory
        Instead, ``module:function`` that returns the model, whose tables must be the file's. With
        neither, the file itself must say where its tables live.
    device
        By default the file's, or CUDA where it names none.
    gpus_per_host
        By default the file's, or those of a node; a node may be a domain of several hosts.
    file
        What was read from there, if it was.

    Raises
    ------
    PlannerError
        Nothing says where the tables live, or they are not the model's, or not all of them; no such
        file.

    """
    file = file or load_plan_file(path)
    said = file.torchrec or {"device": DEVICE, "tables": {}}
    places, left_out = said["tables"], said.get("left_out", ())
    if factory is not None:
        workload, read = read_factory(
            factory, file.workload.local_batch_size, dense=file.workload.dense
        )
        _check_same_tables(file.workload, workload.tables)
        places = {name: {**places.get(name, {}), **at} for name, at in read["tables"].items()}
        left_out = read.get("left_out", ())
    elif module is not None:
        places = {
            table.name: {**places.get(table.name, {}), "module": module, "table": table.name}
            for table in file.workload.tables
        }
    _check_complete(left_out)
    _check_placed(file.workload, places, path)
    made = make_torchrec_plan(
        file.plan,
        places,
        device or said["device"],
        gpus_per_host or said.get("local_world_size"),
        file.workload,
    )
    plan = let_prefetch(made, file.workload.pipeline)
    write_torchrec_file(target, plan)
    return plan


def import_plan(
    path: str | Path, workload: Workload, topology: Topology, hardware: str
) -> PlanFile:
    """Return the plan that ``torch.save(plan, path)`` wrote, as a plan file's content.

    Tables may have the sharding types and compute kernels that they have there.

    Parameters
    ----------
    path
        The file.
    workload, topology
        What the plan is for.
    hardware
        Name or path of the topology's profile.

    Raises
    ------
    PlannerError
        No such file, no plan in it, or one for other tables or ranks.

    """
    plan, besides = take_torchrec_plan(read_torchrec_file(path), workload, topology)
    tables = tuple(_allowing(topology, plan.table(table.name), table) for table in workload.tables)
    return PlanFile(
        plan=plan, workload=replace(workload, tables=tables), hardware=hardware, torchrec=besides
    )


def load_torchrec_plan(
    path: str | Path,
    module: nn.Module,
    sharders: Sequence[Any],
    compute_device: str | None = None,
) -> TorchRecPlan:
    """Return a plan file's plan for a model whose tables have the workload's names and shapes.

    The device is by default the file's, or CUDA where it names none.

    Raises
    ------
    PlanMismatchError
        The file's tables are not the model's, or not all of them.

    """
    file = load_plan_file(path)
    said = file.torchrec or {"device": DEVICE, "tables": {}}
    device = compute_device or said["device"]
    reading = ModelReading(
        compute_device=device,
        local_batch_size=file.workload.local_batch_size,
        dense=file.workload.dense,
    )
    model = read_model(module, sharders, reading)
    unmodelled = () if model is None else [each.fqn for each in model.others]
    _check_complete([*said.get("left_out", ()), *unmodelled])
    _check_same_tables(file.workload, () if model is None else model.tables)
    locations = {} if model is None else model.locations
    made = make_torchrec_plan(
        file.plan,
        placed(locations, said["tables"]),
        device,
        said.get("local_world_size"),
        file.workload,
    )
    return let_prefetch(made, file.workload.pipeline)


def save_plan(path: str | Path, solution: "Solution") -> None:
    """Write the plan of ``IterationTimePlanner`` for ``planner explain`` and ``simulate``.

    Tables that no cost model knows are only named: such a file is not exported.
    """
    ours = [(location.module, location.table) for location in solution.locations.values()]
    plan = only_tables(solution.torchrec_plan, ours)
    kept, besides = take_torchrec_plan(plan, solution.workload, solution.topology)
    left_out = list(_others(solution.torchrec_plan, frozenset(ours)))
    if left_out:
        besides["left_out"] = left_out
    file = PlanFile(
        plan=replace(kept, tables=tuple(map(_with_some_cache, kept.tables))),
        workload=solution.workload,
        hardware=solution.hardware,
        sharder=solution.sharder,
        step_time=solution.step_time,
        replicas=solution.topology.replicas,
        memory=PlanMemory.of(solution.topology, solution.hardware),
        torchrec=besides,
    )
    write_text(path, plan_text(dump_plan_file(file)))


def _allowing(topology: Topology, sharding: TableSharding, table: EmbeddingTable) -> EmbeddingTable:
    """Return the table with a plan's sharding type and kernel allowed."""
    kind, kernel = sharding.sharding_type, sharding.compute_kernel
    kinds, kernels = table.sharding_types, table.compute_kernels
    if kinds and kind not in kinds:
        kinds = (*kinds, kind)
    if kernel not in {*kernels, *allowed_kernels(topology, table, kind)}:
        kernels = (*kernels, kernel)
    return replace(table, sharding_types=kinds, compute_kernels=kernels)


def _with_some_cache(sharding: TableSharding) -> TableSharding:
    """Return the sharding without a cached share of 0, which only kernels without a cache have."""
    return replace(sharding, cache_load_factor=sharding.cache_load_factor or None)


def _others(plan: TorchRecPlan, tables: frozenset[tuple[str, str]]) -> Iterator[str]:
    for path, names in plan.plan.items():
        yield from (full_name(path, name) for name in names if (path, name) not in tables)


def _check_complete(left_out: Sequence[str]) -> None:
    """Raise if the model has tables that the file lacks: they would not be sharded."""
    if left_out:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(left_out))
        raise PlanMismatchError(
            f"the model has tables that no cost model knows, and that no plan file keeps: {names}",
            hint="plan in the job, with IterationTimePlanner.collective_plan",
        )


def _check_same_tables(workload: Workload, tables: Sequence[EmbeddingTable]) -> None:
    planned = {t.name: (t.num_embeddings, t.embedding_dim) for t in workload.tables}
    there = {t.name: (t.num_embeddings, t.embedding_dim) for t in tables}
    for name in sorted(planned.keys() | there.keys()):
        if planned.get(name) != there.get(name):
            raise PlanMismatchError(
                f"table `{name}` is {_shape(there.get(name))} in the model, "
                f"{_shape(planned.get(name))} in the plan file"
            )


def _check_placed(workload: Workload, places: Mapping[str, Any], path: str | Path) -> None:
    missing = [table.name for table in workload.tables if table.name not in places]
    if missing:
        raise PlanMismatchError(
            f"{path} does not say where in the model table `{missing[0]}` lives",
            hint="name the module of all tables, as in --module "
            "sparse_arch.embedding_bag_collection, or a function that makes the model, as in "
            "--from-torchrec my_model:make",
        )


def _shape(rows_columns: tuple[int, int] | None) -> str:
    return "absent" if rows_columns is None else f"{rows_columns[0]} x {rows_columns[1]}"
