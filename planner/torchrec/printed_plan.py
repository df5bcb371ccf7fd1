"""A workload and a plan, as a plan file has them, of TorchRec's printed planner statistics."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import size_text
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.plan import (
    ComputeKernel,
    ShardingPlan,
    ShardingType,
    Shards,
    TableSharding,
    make_shards,
)
from costmodel.domain.workload import UNREAD_DENSE, DataType, EmbeddingTable, Pooling, Workload
from costmodel.memory.rank_memory import memory_per_rank
from planner.files.plan_memory import PlanMemory
from planner.files.plans import PlanFile
from planner.show.format import count
from planner.torchrec.printed_statistics import (
    STORAGE_STEP,
    PrintedMemory,
    PrintedStatistics,
    PrintedTable,
)
from planner.verbs.topologies import make_topology, with_usable

_NUMBER_STEP = 0.001
"""Step in which numbers of ids and poolings are printed."""
_LEAST = _NUMBER_STEP / 4
"""What stands for a number that is printed as 0.0: half of the most that it can be."""
_WEIGHT_TYPES = (DataType.FP32, DataType.FP16, DataType.INT8)
"""Types of weights that sizes tell apart, widest first."""
_OUTPUT_TYPES = (DataType.FP32, DataType.FP16, DataType.BF16)
_MOST_NAMED = 5
_KERNELS = {kernel.value for kernel in ComputeKernel}


def printed_plan(
    stats: PrintedStatistics,
    hardware: HardwareProfile,
    hardware_name: str,
    *,
    nodes: int | None = None,
    data_type: DataType | None = None,
    output_type: DataType | None = None,
) -> tuple[PlanFile, tuple[str, ...]]:
    """Return the plan of a printout as a plan file's content, and what the printout does not say.

    Parameters
    ----------
    stats
        The printout.
    hardware, hardware_name
        The machine that it does not name.
    nodes
        Nodes of the job; None: as the tables that are split within a node say, or else as few as
        hold the ranks.
    data_type
        Type of the weights; None: the widest that is in keeping with the printed sizes.
    output_type
        Type of the looked-up embeddings; None: that of the weights, in which TorchRec counts them.

    Raises
    ------
    InputError
        The printout is of no plan that TorchRec makes; with every problem and its line.

    """
    ours = [table for table in stats.tables if table.compute_kernel in _KERNELS]
    topology = _topology(stats, ours, hardware, nodes)
    names = _names(ours)
    kind = data_type or weight_type(stats)
    workload = Workload(
        name="printed",
        tables=tuple(
            _table(name, table, stats, kind) for name, table in zip(names, ours, strict=True)
        ),
        dense=UNREAD_DENSE,
        local_batch_size=stats.local_batch_size,
        output_type=output_type or (kind if kind in _OUTPUT_TYPES else DataType.FP32),
    )
    plan = ShardingPlan(
        tables=tuple(
            _sharding(stats, name, table, topology) for name, table in zip(names, ours, strict=True)
        ),
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
    )
    topology, of_memory = _with_memory(stats.memory, workload, topology, plan)
    file = PlanFile(
        plan=plan,
        workload=workload,
        hardware=hardware_name,
        memory=PlanMemory.of(topology, hardware_name),
        torchrec=None if _twice(ours) else _places(stats, names, ours),
    )
    told = data_type, output_type
    return file, (*_of_log(stats, ours), *of_memory, *_unsaid(stats, ours, file, told))


def weight_type(stats: PrintedStatistics) -> DataType:
    """Return the widest type of weights, of all tables, that the printed sizes leave room for.

    A table's storage is its weights and more, and what is printed of it is rounded. Where the
    weights of all tables are printed, these are taken.
    """
    most = min((bound for bound, _ in _element_bounds(stats)), default=float("inf"))
    return next((kind for kind in _WEIGHT_TYPES if kind.num_bytes <= most), DataType.INT8)


def _element_bounds(stats: PrintedStatistics) -> Iterator[tuple[float, str]]:
    """Yield bytes that an element has at most, and what says so."""
    for table in stats.tables:
        if table.storage is not None:
            copies = stats.world_size if table.sharding_type is ShardingType.DATA_PARALLEL else 1
            elements = copies * table.num_embeddings * table.embedding_dim
            most = table.storage + STORAGE_STEP
            yield (
                most / elements,
                f"`{table.fqn}` has {elements:,} elements in {size_text(table.storage)}",
            )
    for kernel, weights in stats.weights.items():
        own = (table for table in stats.tables if table.compute_kernel == kernel)
        elements = sum(table.num_embeddings * table.embedding_dim for table in own)
        if elements:
            yield (
                (weights + STORAGE_STEP) / elements,
                f"tables of {kernel} have {elements:,} elements in {size_text(weights)}",
            )


def _topology(
    stats: PrintedStatistics,
    tables: Sequence[PrintedTable],
    hardware: HardwareProfile,
    nodes: int | None,
) -> Topology:
    """Return the ranks, on as many nodes as are told or as the tables' shards say."""
    if not tables:
        message = "the printout has no table with a compute kernel that the cost model knows"
        raise InputError(stats.source, (Problem(message=message, line=stats.line),))
    if nodes is None:
        local = next(filter(None, map(_ranks_of_node, tables)), None)
        if local is not None and not stats.world_size % local:
            nodes = stats.world_size // local
    return make_topology(hardware, stats.world_size, nodes)


def _ranks_of_node(table: PrintedTable) -> int | None:
    """Return the ranks of a node, if a table is split by rows within one."""
    if table.sharding_type is ShardingType.TABLE_ROW_WISE:
        return len(table.ranks)
    if table.sharding_type is ShardingType.GRID_SHARD and table.shard_dim:
        return len(table.ranks) * table.shard_dim // table.embedding_dim
    return None


def _with_memory(
    memory: PrintedMemory | None, workload: Workload, topology: Topology, plan: ShardingPlan
) -> tuple[Topology, tuple[str, ...]]:
    """Return the topology with the printed memory, and what is to be said of that.

    The plan was run: where it needs more by our models, it is given as much.
    """
    if memory is None:
        return topology, ("the memory for tables is not printed: it is the machine's",)
    hardware = topology.hardware
    if memory.ddr:
        host = replace(hardware.host, memory_bytes=memory.ddr * topology.local_world_size)
        topology = replace(topology, hardware=replace(hardware, host=host))
    needed = max(each.tables for each in memory_per_rank(workload, topology, plan))
    said = f"{size_text(memory.for_tables)} of a rank are printed to be left for tables"
    if needed > memory.for_tables:
        said += f"; by our models the plan takes {size_text(needed)}, which it is given"
    return with_usable(topology, workload, [max(needed, memory.for_tables)]), (said,)


def _names(tables: Sequence[PrintedTable]) -> list[str]:
    """Return the tables' names: the whole path for those that share theirs.

    A path that is printed again gets a number; no two tables of a model have one path, but names in
    a log may have been replaced.
    """
    last = [table.fqn.rpartition(".")[2] for table in tables]
    times, seen = Counter(last), Counter[str]()
    names = []
    for short, table in zip(last, tables, strict=True):
        seen[table.fqn] += 1
        number = f" ({seen[table.fqn]})" if seen[table.fqn] > 1 else ""
        names.append(short if times[short] == 1 else table.fqn + number)
    return names


def _table(
    name: str, printed: PrintedTable, stats: PrintedStatistics, data_type: DataType
) -> EmbeddingTable:
    """Return a printed table as a workload has it, free to be sharded in any way."""
    features = printed.num_features
    batches = printed.batch_sizes or (stats.local_batch_size,)
    own = sum(batches) / len(batches) / stats.local_batch_size
    poolings = features if printed.num_poolings is None else printed.num_poolings or _LEAST
    indices = printed.pooling_factor if printed.num_indices is None else printed.num_indices
    kernel = ComputeKernel(printed.compute_kernel)
    usual = {ComputeKernel.FUSED, ComputeKernel.DENSE}
    try:
        return EmbeddingTable(
            name=name,
            num_embeddings=printed.num_embeddings,
            embedding_dim=printed.embedding_dim,
            pooling_factor=(indices or _LEAST) * own,
            bags_per_sample=poolings / features * own,
            feature_names=()
            if features == 1
            else tuple(f"{name}:{number}" for number in range(features)),
            data_type=data_type,
            pooling=Pooling.SUM if printed.pooled else Pooling.NONE,
            weighted=bool(printed.weighted) or "FeatureProcessed" in (printed.sharder or ""),
            compute_kernels=()
            if kernel in usual
            else (ComputeKernel.FUSED, ComputeKernel.DENSE, kernel),
            cache_load_factor=printed.cache_load_factor or None,
        )
    except ValueError as error:
        raise _refused(stats, printed, str(error)) from None


def _sharding(
    stats: PrintedStatistics, name: str, printed: PrintedTable, topology: Topology
) -> TableSharding:
    """Return how a printed table is sharded."""
    kernel = ComputeKernel(printed.compute_kernel)
    cached = kernel is ComputeKernel.FUSED_UVM_CACHING
    return TableSharding(
        table=name,
        sharding_type=printed.sharding_type,
        compute_kernel=kernel,
        shards=_shards(stats, printed, topology),
        cache_load_factor=(printed.cache_load_factor or None) if cached else None,
    )


def _shards(stats: PrintedStatistics, printed: PrintedTable, topology: Topology) -> Shards:
    """Return a printed table's shards: its column blocks go to its ranks in their order."""
    kind, ranks = printed.sharding_type, printed.ranks
    if max(ranks) >= stats.world_size:
        raise _refused(stats, printed, f"rank {max(ranks)} is not among {stats.world_size}")
    local = topology.local_world_size
    block_ranks = ranks[::local] if kind.within_node else ranks
    blocks = 1
    if kind.splits_columns:
        blocks, rest = divmod(printed.embedding_dim, printed.shard_dim or printed.embedding_dim)
        if rest:
            message = f"{printed.embedding_dim} columns are not shards of {printed.shard_dim}"
            raise _refused(stats, printed, message)
    expected = blocks * (stats.world_size if kind.everywhere else local if kind.within_node else 1)
    if kind is ShardingType.GRID_SHARD:
        first = [rank - rank % local for rank in ranks]
        block_ranks = tuple(rank for rank in dict.fromkeys(first) for _ in range(
            first.count(rank) // local
        ))  # fmt: skip
    if len(ranks) != expected:
        message = f"{kind} has {count(expected, 'shard')} here, and ranks of {len(ranks)} are given"
        raise _refused(stats, printed, message)
    return make_shards(
        kind,
        printed.num_embeddings,
        printed.embedding_dim,
        ranks=block_ranks,
        world_size=topology.world_size,
        local_world_size=local,
    )


def _twice(tables: Sequence[PrintedTable]) -> list[str]:
    """Return the paths that several tables have."""
    return [path for path, times in Counter(table.fqn for table in tables).items() if times > 1]


def _refused(stats: PrintedStatistics, table: PrintedTable, message: str) -> InputError:
    problem = Problem(message=f"table `{table.fqn}`: {message}", line=table.line)
    return InputError(stats.source, (problem,))


def _places(
    stats: PrintedStatistics, names: Sequence[str], tables: Sequence[PrintedTable]
) -> Mapping[str, object]:
    """Return where in the model the tables are, as a plan file has it."""
    places = {}
    for name, table in zip(names, tables, strict=True):
        module, _, own = table.fqn.rpartition(".")
        places[name] = {"module": module, "table": own}
    known = {table.fqn for table in tables}
    left_out = [table.fqn for table in stats.tables if table.fqn not in known]
    on_cpu = stats.memory is not None and not stats.memory.hbm
    return {
        "device": "cpu" if on_cpu else "cuda",
        **({"left_out": left_out} if left_out else {}),
        "tables": places,
    }


def _of_log(stats: PrintedStatistics, tables: Sequence[PrintedTable]) -> Iterator[str]:
    """Yield which printout was read, and which of its tables were not."""
    if stats.num_printouts > 1:
        yield f"the log has {stats.num_printouts} printouts: this is the last, of line {stats.line}"
    left_out = [table for table in stats.tables if table not in tables]
    if left_out:
        kernels = ", ".join(sorted({table.compute_kernel for table in left_out}))
        named = _listed([table.fqn for table in left_out])
        yield f"no cost model knows the compute kernel {kernels}: {named} are left out"
    if twice := _twice(tables):
        yield (
            f"{_listed(twice)}: several tables are printed under one path, so that the plan "
            "says of none where in the model it is"
        )


def _unsaid(
    stats: PrintedStatistics,
    tables: Sequence[PrintedTable],
    file: PlanFile,
    told: tuple[DataType | None, DataType | None],
) -> Iterator[str]:
    """Yield what the printout does not say, and what stands for it."""
    yield (
        f"the machine is not printed: {file.hardware}, "
        f"{count(file.plan.local_world_size, 'rank')} a node (--hardware, --nodes)"
    )
    weights, outputs = told
    if weights is None:
        yield _said_of_type(stats)
    if outputs is None:
        yield (
            f"the type of outputs is not printed: {file.workload.output_type}, as TorchRec counts "
            "outputs in the weights' type (--output-type)"
        )
    yield (
        "the dense part is not printed: the step is of the embeddings alone; nor are the ids' "
        "distribution, optimizer, pipeline and codecs: they are as in a workload file that leaves "
        "them out. Write what is known into the plan file's `workload`"
    )
    if any(table.sharding_type.splits_columns and len(table.ranks) > 1 for table in tables):
        yield "ranks are printed in order: which of them has which columns is not known"
    few = [table.fqn for table in tables if not min(
        table.pooling_factor if table.num_indices is None else table.num_indices,
        1.0 if table.num_poolings is None else table.num_poolings,
    )]  # fmt: skip
    if few:
        yield (
            f"ids or poolings of {_listed(few)} are printed as 0.0, which is less than "
            f"{_NUMBER_STEP / 2} a sample: {_LEAST} stands for it"
        )
    if any(table.weighted is None for table in tables):
        yield "whether ids are weighted is not printed: they are taken not to be"


def _said_of_type(stats: PrintedStatistics) -> str:
    """Return how the weights' type was found."""
    kind = weight_type(stats)
    bound, why = min(_element_bounds(stats), default=(0.0, ""))
    if not why:
        return f"the weights' type is not printed: {kind} (--data-type)"
    return (
        f"the weights' type is not printed: {kind}, the widest for which sizes leave room: {why}, "
        f"{bound:.2f} bytes each at most (--data-type)"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
