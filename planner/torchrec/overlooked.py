"""Mistakes in models and sample batches that would pass unnoticed: refused, or warned of.

Ids that are no rows, features that no batch or no table has, tables of another device, and a model
of which no table is predicted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from torchrec.distributed.planner.types import PlannerError, PlannerErrorType

from costmodel.base.errors import suggestion
from planner.show.format import count
from planner.torchrec.error_types import INPUT_VALIDATION
from planner.torchrec.modules import FoundTable
from planner.torchrec.observed_inputs import SampleBatch

Said = tuple[str, str, str]
"""Subject, what becomes of it, and the table or feature (empty: none)."""
_BATCHES = "IterationTimePlanner.sample_batches"
_PRUNED = -1
"""Id of a row that was pruned, which FBGEMM does not read (bounds_check_indices)."""


def check_ids(batches: Sequence[SampleBatch], found: Iterable[FoundTable]) -> None:
    """Raise unless the ids of sample batches are rows of the tables that they look up.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        One is not: ids of the file are hashed later, or of another table.

    """
    ranges = _ranges(batches)
    for table in found:
        if table.config is None or table.unmodelled or _remaps(table):
            continue
        rows = table.config.num_embeddings
        for feature in table.config.feature_names:
            least, most = ranges.get(feature, (0, 0))
            wrong = most if most >= rows else least
            if not _PRUNED <= wrong < rows:
                raise PlannerError(
                    f"table `{table.name}` has {rows:,} rows, but sample_batches have id "
                    f"{wrong:,} of feature `{feature}`: give ids as the model gets them",
                    INPUT_VALIDATION,
                )


def _remaps(table: FoundTable) -> bool:
    """Return whether a module around the collection maps ids of any size to rows."""
    return "ManagedCollision" in type(table.module).__name__


def _ranges(batches: Sequence[SampleBatch]) -> dict[str, tuple[int, int]]:
    """Return the smallest and the largest id of every feature that has ids."""
    ranges: dict[str, tuple[int, int]] = {}
    for name, jagged in _jagged(batches):
        ids = jagged.values()
        if len(ids):
            least, most = ranges.get(name, (int(ids[0]), int(ids[0])))
            ranges[name] = min(least, int(ids.min())), max(most, int(ids.max()))
    return ranges


def _jagged(batches: Sequence[SampleBatch]) -> Iterator[tuple[str, Any]]:
    for batch in batches:
        yield from batch.to_dict().items()


def unknown_features(
    batches: Sequence[SampleBatch], tables: Iterable[FoundTable]
) -> Iterator[Said]:
    """Yield the features of sample batches that no table of the model has."""
    configs = [each.config for each in tables if each.config is not None]
    known = {feature for config in configs for feature in config.feature_names}
    for feature in dict.fromkeys(name for name, _ in _jagged(batches)):
        if feature not in known:
            yield _BATCHES, "no table of the model has such a feature", feature


def unseen_features(batches: Sequence[SampleBatch], found: Iterable[FoundTable]) -> Iterator[Said]:
    """Yield the tables of whose features sample batches have no id."""
    lengths: dict[str, int] = {}
    for name, jagged in _jagged(batches):
        lengths[name] = lengths.get(name, 0) + len(jagged.values())
    for table in found if batches else ():
        if table.config is None or table.unmodelled:
            continue
        yield from ((*said, table.name) for said in _unseen(table.config.feature_names, lengths))


def _unseen(features: Sequence[str], lengths: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield what is assumed of features that no batch has, or has ids of, with the reason."""
    absent = [name for name in features if name not in lengths]
    if absent:
        reason = (
            "taken to have one id a sample each, unless `pooling_factors` of the table's "
            "ParameterConstraints say otherwise"
        )
        yield f"{_BATCHES} without {_quoted(absent)}", reason
    empty = [name for name in features if lengths.get(name) == 0]
    if empty and not any(lengths.get(name) for name in features):
        reason = "taken to be looked up once in all of them: its lookups cost next to nothing"
        yield f"{_BATCHES} with no id of {_quoted(empty)}", reason


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def nothing_left(found: FoundTable, compute_device: str, name: str) -> PlannerError:
    """Return the error of a table whose constraints exclude everything that is offered."""
    constraint, offered = found.constraint, found.offered(compute_device)
    who = "the enumerator" if found.listed is not None else type(found.sharder).__name__
    if not offered:
        return PlannerError(
            f"table `{name}` cannot be sharded: on {compute_device} {who} offers no sharding type; "
            "plan for another device, or without this sharder",
            PlannerErrorType.STRICT_CONSTRAINTS,
        )
    by_kernels: dict[str, list[str]] = {}
    for kind, each in offered.items():
        by_kernels.setdefault(", ".join(sorted(each)), []).append(kind)
    there = "; ".join(f"{', '.join(kinds)} ({each})" for each, kinds in by_kernels.items())
    types = getattr(constraint, "sharding_types", None) or ["any"]
    kernels = getattr(constraint, "compute_kernels", None) or ["any"]
    known = {*offered, *chain(*offered.values())}
    strange = [str(each) for each in (*types, *kernels) if each not in {*known, "any"}]
    meant = [suggestion(each.rpartition(".")[2], sorted(known)) for each in strange]
    return PlannerError(
        f"table `{name}` cannot be sharded: its constraints allow sharding types "
        f"{', '.join(map(str, types))} with kernels {', '.join(map(str, kernels))}; "
        f"on {compute_device} {who} offers {there}, of which `dense` suits "
        f"data_parallel only{''.join(f'; {each}' for each in meant if each)}",
        PlannerErrorType.STRICT_CONSTRAINTS,
    )


def left_out(
    tables: Sequence[FoundTable], found: Sequence[FoundTable], compute_device: str
) -> Iterator[Said]:
    """Yield the tables that are not in the plan, whose step is not predicted.

    Parameters
    ----------
    tables
        All tables that the sharders can shard.
    found
        Those on the device that is planned for.
    compute_device
        That device.

    """
    here = {id(each) for each in found}
    for table in tables:
        if id(table) not in here:
            setting = f"ParameterConstraints.device_group {table.constraint.device_group}"
            reason = f"the plan is for {compute_device}, and has no such table"
            yield setting, f"{reason}: plan for that device, too", table.name
    if found and all(each.unmodelled for each in found):
        reason = f"no cost model knows {count(len(found), 'table')}, which TorchRec plans"
        yield "IterationTimePlanner.solution", f"None, as {reason}", ""
