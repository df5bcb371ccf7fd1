"""Plan files: a sharding plan with the workload it was made for, as JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.base.errors import InputError, PlanMismatchError, Problem
from costmodel.base.limits import MOST_RANKS
from costmodel.base.units import Seconds
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.plan import (
    Replicas,
    Shard,
    ShardingPlan,
    ShardingType,
    Shards,
    TableSharding,
)
from costmodel.domain.replica_groups import ReplicaGroups, ShardingStrategy, local_group_size
from costmodel.domain.workload import Workload
from planner.files.disk import read_text, source_name
from planner.files.json_text import dump_json
from planner.files.kinds import FileKind, check_kind
from planner.files.plan_memory import PlanMemory
from planner.files.profiles import load_profile, profile_names
from planner.files.source import Document, looks_like_json, parse_json, parse_yaml
from planner.files.validator import Validator, in_order
from planner.files.workload_reading import workload_from_document
from planner.files.workload_text import workload_data

if TYPE_CHECKING:
    from planner.files.plan_schema import ReplicasEntry

SCHEMA_VERSION = 2
_READ = (1, SCHEMA_VERSION)
"""Versions that are read; the step of the first is the models', which is not compared with."""
"""Version of plan files, raised when today's readers could not read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A plan, and everything that predicting its step again needs."""

    plan: ShardingPlan
    workload: Workload
    hardware: str
    """Name or path of the hardware profile."""
    sharder: str | None = None
    """The sharder that found the plan."""
    seed: int | None = None
    step_time: Seconds | None = None
    """The step predicted when the plan was made."""
    replicas: ReplicaGroups | None = None
    """The groups that each hold all tables, of which the plan is one's; None: there is one."""
    memory: PlanMemory | None = None
    """The memory that the plan was made under; None: the profile's."""
    torchrec: Mapping[str, Any] | None = None
    """Paths of the tables in a TorchRec model, if known (``plan_schema.TorchRecEntry``)."""


def load_plan_file(path: str | Path) -> PlanFile:
    """Read a plan file (``-`` is standard input).

    Its profile may be a name or a file; a file that is not there is looked for beside the plan.

    Raises
    ------
    InputError
        The file is not a plan file; with every problem and its position.
    PlanMismatchError
        The plan does not shard exactly the tables of its workload.

    """
    file = parse_plan_file(read_text(path), source_name(path))
    beside = Path(path).parent / file.hardware
    is_here = file.hardware in profile_names() or Path(file.hardware).exists()
    return file if is_here or not beside.is_file() else replace(file, hardware=str(beside))


def load_plan_hardware(file: PlanFile) -> HardwareProfile:
    """Return the profile that a plan file names.

    It may name any file of this machine: if that is not a profile, errors show nothing of it.

    Raises
    ------
    UnknownNameError, InputError
        There is no such profile, or it cannot be used.

    """
    try:
        return load_profile(file.hardware)
    except InputError:
        message = f"the hardware `{file.hardware}` of this plan cannot be used"
        hint = (
            "it is the profile that the plan was made by: put it there or beside the plan, or "
            "write the path of another one into the plan's `hardware`; planner profiles show "
            f"{file.hardware} says what is wrong with it"
        )
        raise InputError("plan", (Problem(message=message, hint=hint),)) from None


def planned_topology(file: PlanFile) -> Topology:
    """Return the ranks that a plan was made for, on its profile, with the memory of that time.

    Raises
    ------
    UnknownNameError, InputError
        The profile is not there, or cannot be used.

    """
    hardware, memory = load_plan_hardware(file), file.memory
    if memory is None:
        return topology_of(file, hardware)
    made_for = topology_of(file, memory.limit(hardware))
    return replace(made_for, withheld_bytes=memory.withheld_bytes)


def topology_of(file: PlanFile, hardware: HardwareProfile) -> Topology:
    """Return the ranks that a plan is for, on a machine and with all its memory."""
    return Topology(
        hardware=hardware,
        world_size=file.plan.world_size,
        local_world_size=file.plan.local_world_size,
        replicas=file.replicas,
    )


def parse_plan_file(text: str, source: str) -> PlanFile:
    """Read a plan file from a text; `source` is what messages call it."""
    document = _document(text, source)
    check_kind(document, FileKind.PLAN)
    _check_is_plan(document)
    plan_file = _plan_file(document, workload_from_document(document, ("workload",)))
    _check_names(plan_file.plan, plan_file.workload, source)
    return plan_file


def dump_plan_file(plan_file: PlanFile) -> dict[str, Any]:
    """Return a plan file as plain data; a report may add keys of its own."""
    return {
        "schema_version": SCHEMA_VERSION,
        "step_time_s": plan_file.step_time,
        "sharder": plan_file.sharder,
        "seed": plan_file.seed,
        "hardware": plan_file.hardware,
        "world_size": plan_file.plan.world_size,
        "local_world_size": plan_file.plan.local_world_size,
        **({} if plan_file.replicas is None else {"replicas": _replicas_data(plan_file.replicas)}),
        "tables": [table_data(table) for table in plan_file.plan.tables],
        **({} if plan_file.memory is None else {"memory": plan_file.memory.to_dict()}),
        **({} if plan_file.torchrec is None else {"torchrec": plan_file.torchrec}),
        "workload": workload_data(plan_file.workload),
    }


def _replicas_data(replicas: ReplicaGroups) -> dict[str, Any]:
    """Return the groups of a plan file as plain data."""
    return {**asdict(replicas), "sharding_strategy": replicas.sharding_strategy.value}


def table_data(table: TableSharding) -> dict[str, Any]:
    """Return one table's sharding as plain data."""
    cache = table.cache_load_factor
    return {
        "name": table.table,
        "sharding_type": table.sharding_type.value,
        "compute_kernel": table.compute_kernel.value,
        **({} if cache is None else {"cache_load_factor": cache}),
        "shards": [
            {
                "rank": shard.rank,
                **({} if len(ranks) == 1 else {"num_ranks": len(ranks)}),
                "row_offset": shard.row_offset,
                "num_rows": shard.num_rows,
                "column_offset": shard.column_offset,
                "num_columns": shard.num_columns,
            }
            for shard, ranks in table.distinct_shards()
        ],
    }


def plan_from_tables(tables: Iterable[Mapping[str, Any]], topology: Topology) -> ShardingPlan:
    """Return the plan of tables written by ``table_data``; their form was checked before."""
    from planner.files.plan_schema import TableEntry

    return ShardingPlan(
        tables=tuple(_table_sharding(TableEntry.model_validate(table)) for table in tables),
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
    )


def plan_text(data: Mapping[str, Any]) -> str:
    """Return plain data as JSON with one table, rank or other list item per line."""
    body = ",\n".join(f"  {dump_json(key)}: {_block(value, 2)}" for key, value in data.items())
    return f"{{\n{body}\n}}\n"


def _block(value: Any, indent: int) -> str:  # noqa: ANN401 - plain JSON data
    """Return a value as indented JSON lines."""
    pad = " " * indent
    if isinstance(value, Mapping) and any(isinstance(item, list) for item in value.values()):
        rows = [f"{dump_json(key)}: {_block(item, indent + 2)}" for key, item in value.items()]
        return "{\n" + ",\n".join(f"{pad}  {row}" for row in rows) + f"\n{pad}}}"
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "[\n" + ",\n".join(f"{pad}  {dump_json(item)}" for item in value) + f"\n{pad}]"
    return dump_json(value)


def _value_text(value: object) -> str:
    """Return a value as text of a file, also where JSON has no such number (NaN)."""
    try:
        return dump_json(value)
    except ValueError:
        return str(value)


def _document(text: str, source: str) -> Document:
    """Return the parsed JSON; an error says which other file of ours a text is."""
    try:
        return parse_json(text, source)
    except InputError:
        other = None
        if not looks_like_json(text):
            with suppress(InputError):
                other = parse_yaml(text, source)
        if other is not None:
            check_kind(other, FileKind.PLAN)
        raise


def _check_is_plan(document: Document) -> None:
    data = document.data
    problem = None
    if not isinstance(data, dict):
        problem = document.problem("a plan file must be a JSON object", ())
    elif "tables" not in data or "workload" not in data:
        missing = "tables" if "tables" not in data else "workload"
        problem = Problem(
            message=f"not a plan file: it has no `{missing}`",
            hint="plan files are written by `planner plan`",
        )
    elif repr(given := data.get("schema_version")) not in map(repr, _READ):  # nor true, nor 1.0
        read = " and ".join(map(str, _READ))
        message = f"schema_version is {_value_text(given)}, and this planner reads {read}"
        problem = document.problem(message, ("schema_version",), hint="plan again")
    if problem:
        raise InputError(document.source, (problem,), document.text)


def _plan_file(document: Document, workload: Workload) -> PlanFile:
    from planner.files.plan_schema import PlanDocument

    validator = Validator(document)
    data = {key: value for key, value in document.data.items() if key != "workload"}
    values = validator.whole(PlanDocument, data, ())
    if values is not None:
        _check_ranks(validator, values)
    if values is None or validator.problems:
        raise InputError(document.source, in_order(validator.problems), document.text)
    plan = ShardingPlan(
        tables=tuple(_table_sharding(entry) for entry in values["tables"]),
        world_size=values["world_size"],
        local_world_size=values["local_world_size"],
    )
    memory, torchrec, replicas = (values.get(key) for key in ("memory", "torchrec", "replicas"))
    _check_hardware(document, values["hardware"])
    return PlanFile(
        plan=plan,
        workload=workload,
        hardware=values["hardware"],
        sharder=values.get("sharder"),
        seed=values.get("seed"),
        step_time=values.get("step_time_s") if document.data["schema_version"] > 1 else None,
        replicas=replicas and ReplicaGroups(**replicas.model_dump()),
        memory=memory and PlanMemory(**memory.model_dump()),
        torchrec=torchrec and torchrec.model_dump(exclude_none=True),
    )


def _check_hardware(document: Document, hardware: str) -> None:
    """Raise InputError if a plan names a device or a pipe, which reading may never end."""
    if "\0" in hardware or (Path(hardware).exists() and not Path(hardware).is_file()):
        message = f"`hardware` must be a profile's name or its file, got `{hardware[:80]}`"
        raise InputError(
            document.source, (document.problem(message, ("hardware",)),), document.text
        )


def _table_sharding(entry: Any) -> TableSharding:  # noqa: ANN401 - plan_schema.TableEntry
    shards: Shards = tuple(
        Shard(
            rank=shard.rank,
            row_offset=shard.row_offset,
            num_rows=shard.num_rows,
            column_offset=shard.column_offset,
            num_columns=shard.num_columns,
        )
        for shard in entry.shards
    )
    if entry.shards[0].num_ranks > 1:
        shards = Replicas(first=shards[0], num_ranks=entry.shards[0].num_ranks)
    return TableSharding(
        table=entry.name,
        sharding_type=entry.sharding_type,
        compute_kernel=entry.compute_kernel,
        cache_load_factor=entry.cache_load_factor,
        shards=shards,
    )


def _check_ranks(validator: Validator, values: Mapping[str, Any]) -> None:
    """Note ranks that do not exist, and copies of tables that have none."""
    world, local = values["world_size"], values["local_world_size"]
    if world % local:
        message = f"world_size {world} is not a multiple of local_world_size {local}"
        validator.note(message, ("local_world_size",))
    elif values.get("replicas") is not None:
        _check_groups(validator, world, local, values["replicas"])
    memory = values.get("memory")
    if memory is not None and len(memory.withheld_bytes) not in {0, world}:
        message = f"`withheld_bytes` needs {world} numbers, got {len(memory.withheld_bytes)}"
        validator.note(message, ("memory", "withheld_bytes"), hint="one for each rank")
    for number, table in enumerate(values["tables"]):
        for index, shard in enumerate(table.shards):
            path, last = ("tables", number, "shards", index), shard.rank + shard.num_ranks - 1
            several = shard.num_ranks > 1
            if last >= world:
                validator.note(
                    f"rank {last} of table `{table.name}` does not exist",
                    (*path, "num_ranks" if shard.rank < world else "rank"),
                    hint=f"the plan has ranks 0 to {world - 1}",
                )
            if several and table.sharding_type is not ShardingType.DATA_PARALLEL:
                validator.note(
                    f"table `{table.name}` is {table.sharding_type}, and only data_parallel has "
                    f"copies on {shard.num_ranks} ranks",
                    (*path, "num_ranks"),
                    hint="list the shard of every rank, without `num_ranks`",
                )
            elif several and len(table.shards) > 1:
                validator.note(
                    f"a shard of table `{table.name}` on {shard.num_ranks} ranks is not its only "
                    "one",
                    (*path, "num_ranks"),
                    hint="list one shard for all ranks, or every rank's without `num_ranks`",
                )


def _check_groups(validator: Validator, world: int, local: int, replicas: "ReplicasEntry") -> None:
    """Note groups whose ranks are not as many on every node, or more than a job can have."""
    num_ranks, path = world * replicas.num_groups, ("replicas", "num_groups")
    if num_ranks > MOST_RANKS:
        validator.note(f"{num_ranks:,} ranks in all, and {MOST_RANKS:,} can be planned for", path)
        return
    try:
        there = local_group_size(
            world, replicas.num_groups, replicas.ranks_per_node,
            consecutive=replicas.use_inter_host_allreduce,
        )  # fmt: skip
    except ValueError as error:
        validator.note(str(error), path)
        return
    if replicas.sharding_strategy is not ShardingStrategy.DEFAULT and replicas.sync_interval > 1:
        message = f"{replicas.sharding_strategy} replicas are averaged in every step"
        validator.note(message, ("replicas", "sync_interval"), hint="write 1")
    if world < 2 or local != there:
        message = f"local_world_size is {local}, and these groups have {there} ranks on a node"
        validator.note(message, ("local_world_size",))


def _check_names(plan: ShardingPlan, workload: Workload, source: str) -> None:
    """Refuse a plan that has other tables than its workload, or one twice."""
    planned = Counter(table.table for table in plan.tables)
    known = {table.name for table in workload.tables}
    problems = [
        *_listed("shards tables its workload does not have", sorted(set(planned) - known)),
        *_listed("leaves out", sorted(known - set(planned))),
        *_listed("shards more than once", sorted(n for n, c in planned.items() if c > 1)),
    ]
    if problems:
        said = f"{source}: the plan {', and '.join(problems)}"
        raise PlanMismatchError(said, hint="plan again")


def _listed(what: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return a problem's name followed by the tables that have it; nothing if none has."""
    shown = ", ".join(f"`{name}`" for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (f"{what}: {shown}{more}",) if names else ()
