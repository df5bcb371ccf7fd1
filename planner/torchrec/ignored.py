"""One warning of settings that change no plan, and of what is planned roughly."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torchrec.distributed.planner import constants
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.types import ShardingPlan
from torchrec.modules.embedding_modules import EmbeddingCollection

from costmodel.domain.plan import ComputeKernel
from planner.show.format import count
from planner.torchrec.communication import own_sharder, table_output, wire_types
from planner.torchrec.error_types import refusing
from planner.torchrec.model_reading import (
    offered_kernels,
    optimizer_name,
    planned_kernels,
    unmodelled_optimizers,
)
from planner.torchrec.modules import FoundTable, ModelReading, full_name, namesakes, on_device
from planner.torchrec.overlooked import left_out, unknown_features, unseen_features
from planner.torchrec.replication import has_no_rate, is_frozen
from planner.torchrec.setting_treatments import (
    WRAPPERS,
    argument_defaults,
    unheeded,
    unheeded_fields,
)
from planner.torchrec.table_reads import num_inputs, untold

Said = tuple[str, str, str]
"""A setting, why it changes nothing, and its table (empty: no table's)."""
_MOST_NAMED = 4


def settings_warning(
    topology: Topology,
    arguments: Mapping[str, object],
    tables: Sequence[FoundTable],
    reading: ModelReading,
    unheeded: Sequence[Said],
    beside: Sequence[Said] = (),
) -> str:
    """Return one message of all that changes nothing, is planned roughly, or is left out.

    Parameters
    ----------
    topology, arguments
        As for ``ignored_settings``.
    tables
        All tables that the sharders can shard, on any device.
    reading
        How the tables are read.
    unheeded
        What an enumerator lists and the plan does not follow.
    beside
        What else is set and changes nothing.

    """
    found = on_device(tables, reading)
    ignored = [
        *beside,
        *ignored_settings(topology, arguments, found),
        *unmatched(reading, tables),
        *unknown_features(reading.batches, tables),
    ]
    rough = [
        *planned_roughly(topology, found, reading),
        *unheeded,
        *unmodelled_optimizers(found),
        *unseen_features(reading.batches, found),
    ]
    return warning(ignored, rough, [*left_out(tables, found, topology.compute_device)])


def ignored_settings(
    topology: Topology, arguments: Mapping[str, object], found: Sequence[FoundTable]
) -> list[Said]:
    """Return the settings that are not the default and change nothing.

    Parameters
    ----------
    topology
        What is planned over.
    arguments
        Of the planner's constructor.
    found
        The model's tables, with their sharders, configurations and constraints.

    """
    said: list[Said] = []
    unset = dict.fromkeys(arguments)
    said += _without_table(unheeded("EmbeddingShardingPlanner", arguments, unset))
    if not any(table.unmodelled for table in found):
        said += _without_table(_topology_settings(topology))
    sharders = {id(each.sharder): each.sharder for each in found}
    for sharder in sharders.values():
        said += _without_table(_sharder_settings(sharder))
    for table in found:
        said += [(name, reason, table.name) for name, reason in _table_settings(table)]
    return said


def unmatched(reading: ModelReading, tables: Iterable[FoundTable]) -> list[Said]:
    """Return the constraints and the fixed plans of tables that the model does not have.

    Parameters
    ----------
    reading
        Has constraints and fixed plans by name, or by module path and name.
    tables
        All tables that the sharders can shard, on any device.

    """
    paths = {each.fqn: each.name for each in tables}
    known = {*paths, *paths.values()}
    fixed = [full_name(path, table) for path, own in reading.fixed.items() for table in own]
    return [
        (f"IterationTimePlanner.{argument}", "the sharders shard no such table of the model", name)
        for argument, names in (("constraints", reading.constraints), ("fixed_plan", fixed))
        for name in names
        if name not in known
    ]


def planned_roughly(
    topology: Topology, found: Sequence[FoundTable], reading: ModelReading
) -> list[Said]:
    """Return what is planned roughly: modules of which the collection alone is timed.

    Further, tables that no cost model knows, with the topology's settings that they alone follow,
    and tables whose inputs are unknown or not those of their features.
    """
    rough: list[Said] = []
    if any(table.unmodelled for table in found):
        heeded = "for tables that TorchRec plans it is heeded; else"
        rough += [(name, f"{heeded} {why}", "") for name, why in _topology_settings(topology)]
    for table in found:
        kind = type(table.module).__name__
        if not (getattr(table.parameter, "requires_grad", True) or has_no_rate(table)):
            reason = (
                "TorchRec trains it all the same, by the optimizer of its kernel, unless that has "
                "a rate of 0 (apply_optimizer_in_backward(..., {'lr': 0.0}))"
            )
            rough.append(("requires_grad=False", reason, table.name))
        if table.unmodelled:
            reason = f"planned by TorchRec, with its estimates: {table.unmodelled}"
            rough.append((f"module `{table.path}`", reason, table.name))
        elif kind in WRAPPERS:
            rough.append((f"module `{table.path}`", f"{kind}: {WRAPPERS[kind]}", ""))
    for name in dict.fromkeys(each.name for each in namesakes(found)):
        reason = (
            "TorchRec's own estimates are without their constraints, which it cannot tell apart"
        )
        rough.append((f"tables of several modules named `{name}`", reason, ""))
    ours = [each for each in found if not each.unmodelled]
    rough += [said for each in ours for said in _left_out(each, topology.compute_device)]
    rough += [(*said, each.name) for each in ours for said in _input_assumptions(each, reading)]
    return [*dict.fromkeys(rough), *_mixed(ours)]


def on_replicas(
    plan: ShardingPlan, fixed: ShardingPlan, found: Sequence[FoundTable], compute_device: str
) -> Iterator[str]:
    """Yield what a training loop must do for the tables that the plan replicates.

    TorchRec makes parameters of their own of them, which know nothing of what
    ``apply_optimizer_in_backward`` or ``fused_params`` have set, or will set. Nothing is said to a
    script that allowed nothing else, or has a plan for it, and has set no such optimizer.
    """
    replicated = [each for each in found if _is_dense(plan, each)]
    frozen = [each.fqn for each in replicated if is_frozen(each)]
    if frozen:
        yield (
            f"the plan replicates {count(len(frozen), 'table')}{_listed(frozen)} (data_parallel), "
            "frozen as they are, as nothing else is allowed for them: the training loop's dense "
            "optimizer must not have their parameters, or it trains them"
        )
    unexpected = [
        each.fqn
        for each in replicated
        if not is_frozen(each)
        and (optimizer_name(each) or _was_chosen(each, fixed, compute_device))
    ]
    if unexpected:
        yield (
            f"the optimizer in the backward does not update {count(len(unexpected), 'table')}"
            f"{_listed(unexpected)} of the plan, replicated (data_parallel) as they are: put their "
            "parameters into the training loop's dense optimizer (TorchRec's "
            "in_backward_optimizer_filter yields them, once the model is sharded), or they are not "
            "trained; IterationTimePlanner(replicate=False), or sharding_types without "
            "data_parallel in their ParameterConstraints, avoid it"
        )


def _was_chosen(found: FoundTable, fixed: ShardingPlan, compute_device: str) -> bool:
    """Return whether this planner could have chosen another sharding of a table."""
    given = found.name in fixed.plan.get(found.path, {})
    return not (given or found.unmodelled) and len(offered_kernels(found, compute_device)) > 1


def _is_dense(plan: ShardingPlan, found: FoundTable) -> bool:
    sharding = plan.plan.get(found.path, {}).get(found.name)
    return sharding is not None and sharding.compute_kernel == ComputeKernel.DENSE.value


def _left_out(found: FoundTable, compute_device: str) -> Iterator[Said]:
    """Yield the kernels of sharding types that a table could have and that are not planned."""
    offered = offered_kernels(found, compute_device)
    planned = planned_kernels(offered)
    for kind, kernels in offered.items():
        for kernel in sorted(kernels - set(planned.get(kind, ()))):
            setting = f"{type(found.sharder).__name__}.compute_kernels"
            yield (
                setting,
                f"not all sharding types have {kernel}: it is not planned for {kind}",
                found.name,
            )


def _input_assumptions(found: FoundTable, reading: ModelReading) -> Iterator[tuple[str, str]]:
    """Yield assumptions about the ids of a table, each with its reason."""
    if isinstance(found.collection, EmbeddingCollection) and untold(found, reading):
        reason = (
            "read as one id a sample for each feature: give sample_batches, or mean lengths as "
            "`pooling_factors` of their ParameterConstraints"
        )
        yield "sequence tables", reason
    features = len(found.config.feature_names)
    with refusing(f"table `{found.name}`"):
        inputs = num_inputs(found)
    if inputs != features:
        reason = (
            f"{inputs} values for {count(features, 'feature')} are added up, as in TorchRec's "
            "estimates: each is an input of every sample"
        )
        yield "ParameterConstraints.pooling_factors, num_poolings, batch_sizes", reason


def _mixed(found: Sequence[FoundTable]) -> Iterator[Said]:
    """Yield settings of which a workload has one value and the model several."""
    outputs = sorted({table_output(each).value for each in found})
    if len(outputs) > 1:
        reason = "every table's output is counted in the widest of them"
        yield f"output types {', '.join(outputs)}", reason, ""
    wires = {wire_types([each]) for each in found}
    if len(wires) > 1:
        reason = "every exchange is counted with the widest codec, or with none where one has none"
        yield "codecs that differ between sharders", reason, ""


def warning(ignored: Sequence[Said], rough: Sequence[Said], left_out: Sequence[Said] = ()) -> str:
    """Return one message of all settings; empty if there are none."""
    parts = (
        ("these are left out:", left_out),
        ("these settings do not change what is planned:", ignored),
        ("these are planned roughly:", rough),
    )
    return "\n".join("\n  ".join([title, *_lines(said)]) for title, said in parts if said)


def _lines(said: Sequence[Said]) -> Iterator[str]:
    """Yield a line for each thing said, with the tables that it is said of."""
    tables: dict[tuple[str, str], list[str]] = {}
    for name, reason, table in said:
        tables.setdefault((name, reason), []).append(table)
    for (name, reason), where in tables.items():
        yield f"{name}{_listed(where)}: {reason}"


def _listed(tables: Sequence[str]) -> str:
    named = [table for table in dict.fromkeys(tables) if table]
    if not named:
        return ""
    more = len(named) - _MOST_NAMED
    shown = ", ".join(named[:_MOST_NAMED])
    return f" ({shown} and {more} more)" if more > 0 else f" ({shown})"


def _without_table(said: Iterator[tuple[str, str]]) -> Iterator[Said]:
    return ((name, reason, "") for name, reason in said)


def _topology_settings(topology: Topology) -> Iterator[tuple[str, str]]:
    """Yield the topology's settings that no prediction heeds, with the reason."""
    defaults = argument_defaults(Topology.__init__)
    values = {name: getattr(topology, name) for name in defaults if hasattr(topology, name)}
    storage = topology.devices[0].storage
    caps: list[str] = [name for name in ("hbm_cap", "ddr_cap", "ssd_cap") if name in defaults]
    capacities: dict[str, object] = {name: getattr(constants, name.upper(), None) for name in caps}
    values |= {name: getattr(storage, name.partition("_")[0]) for name in caps}
    bandwidths = type(topology.comms_bandwidths).__name__
    if bandwidths != "BasicCommsBandwidths":
        # its own numbers stand in the place of these two
        values |= {
            "generalized_comms_bandwidths": bandwidths,
            "intra_host_bw": defaults["intra_host_bw"],
            "inter_host_bw": defaults["inter_host_bw"],
        }
    yield from unheeded("Topology", values, {**defaults, **capacities})


def _sharder_settings(sharder: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a ModuleSharder
    for each in {id(one): one for one in (sharder, own_sharder(sharder))}.values():
        kind = type(each)
        if kind.__module__.startswith("torchrec."):
            defaults = argument_defaults(kind.__init__)
            kept = vars(each)
            values = {name: kept[f"_{name}"] for name in defaults if f"_{name}" in kept}
            yield from unheeded("sharder", values, defaults)
    yield from unheeded(
        "fused_params", getattr(sharder, "fused_params", None) or {}, _fbgemm_defaults()
    )


def _fbgemm_defaults() -> dict[str, object]:
    """Return the defaults of FBGEMM's arguments, by name."""
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    return argument_defaults(SplitTableBatchedEmbeddingBagsCodegen.__init__)


def _table_settings(table: FoundTable) -> Iterator[tuple[str, str]]:
    """Yield a table's settings that no prediction heeds, with the reason."""
    yield from unheeded_fields("table", table.config)
    constraint = table.constraint
    if constraint is None:
        return
    yield from unheeded_fields("ParameterConstraints", constraint)
    for owner in ("cache_params", "key_value_params"):
        record = getattr(constraint, owner, None)
        yield from unheeded_fields(_CLASS[owner], record)


_CLASS = {"cache_params": "CacheParams", "key_value_params": "KeyValueParams"}
