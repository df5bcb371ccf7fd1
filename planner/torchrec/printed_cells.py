"""The columns of TorchRec's printed table of parameters, and what their cells say."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from costmodel.base.units import GIB, Bytes
from costmodel.domain.plan import ShardingType

SHARDING_NAMES = {
    ShardingType.DATA_PARALLEL: "DP",
    ShardingType.TABLE_WISE: "TW",
    ShardingType.ROW_WISE: "RW",
    ShardingType.COLUMN_WISE: "CW",
    ShardingType.TABLE_ROW_WISE: "TWRW",
    ShardingType.TABLE_COLUMN_WISE: "TWCW",
    ShardingType.GRID_SHARD: "GS",
}
"""Sharding types as statistics print them."""
_TYPES = {name: kind for kind, name in SHARDING_NAMES.items()}
_RANKS = re.compile(r"\d+-\d+|\d+(?:,\d+)*")


def _text(text: str) -> str:
    return text


def whole_number(text: str) -> int:
    """Return a whole number of one or more."""
    if not text.isdecimal() or not int(text):
        raise ValueError(f"must be a whole number above 0, got `{text}`")
    return int(text)


def number(text: str) -> float:
    """Return a number that is not negative."""
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not 0 <= given < inf:
        raise ValueError(f"must be a number, 0 or more, got `{text}`")
    return given


def _share(text: str) -> float | None:
    return None if text == "None" else number(text)


def _one_of(choices: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return a reader of names."""

    def read(text: str) -> Any:  # noqa: ANN401 - what the names stand for
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, got `{text}`")
        return choices[text]

    return read


def _ranks(text: str) -> tuple[int, ...]:
    if text == "None":
        raise ValueError("are None: the planner found no plan")
    if not _RANKS.fullmatch(text):
        raise ValueError(f"must be ranks, as `0-7` or `1,3,3`, got `{text}`")
    first, dash, last = text.partition("-")
    return tuple(range(int(first), int(last) + 1)) if dash else tuple(map(int, text.split(",")))


def _storage(text: str) -> Bytes:
    sizes = re.fullmatch(r"\(([\d.]+) GB(?:, ([\d.]+) GB)?(?:, ([\d.]+) GB)?\)", text)
    if sizes is None:
        raise ValueError(f"must be sizes in GB, as `(1.5 GB, 0.0 GB)`, got `{text}`")
    return sum(number(size) for size in sizes.groups() if size is not None) * GIB


def _widths(text: str) -> tuple[int, int | None]:
    """Return a table's columns, and a column shard's."""
    match = re.fullmatch(r"(\d+)(?: \((\d+)\))?", text)
    if match is None:
        raise ValueError(f"must be columns, as `256` or `256 (128)`, got `{text}`")
    return whole_number(match[1]), None if match[2] is None else whole_number(match[2])


def _batch_sizes(text: str) -> tuple[int, ...]:
    """Return a feature's batch sizes from ``2560*4, 512``; none for ``n/a``."""
    if text == "n/a":
        return ()
    sizes: list[int] = []
    for each in text.split(","):
        size, _, times = each.partition("*")
        sizes += [whole_number(size.strip())] * whole_number(times.strip() or "1")
    return tuple(sizes)


@dataclass(frozen=True, slots=True)
class PrintedColumn:
    """A column of the table of parameters."""

    field: str
    """Field of ``PrintedTable``; ``widths``: two of them."""
    read: Callable[[str], Any]
    """Reads a cell; raises ValueError with what is wrong."""
    needed: bool = False


COLUMNS: Mapping[str, PrintedColumn] = {
    "FQN": PrintedColumn("fqn", _text, needed=True),
    "Sharding": PrintedColumn("sharding_type", _one_of(_TYPES), needed=True),
    "Compute Kernel": PrintedColumn("compute_kernel", _text, needed=True),
    "Storage": PrintedColumn("storage", _storage),
    "Cache Load Factor": PrintedColumn("cache_load_factor", _share),
    "Pooling Factor": PrintedColumn("pooling_factor", number, needed=True),
    "Num Poolings": PrintedColumn("num_poolings", number),
    "Num Indices": PrintedColumn("num_indices", number),
    "Output": PrintedColumn("pooled", _one_of({"pooled": True, "sequence": False}), needed=True),
    "Weighted": PrintedColumn("weighted", _one_of({"weighted": True, "unweighted": False})),
    "Sharder": PrintedColumn("sharder", _text),
    "Features": PrintedColumn("num_features", whole_number),
    "Emb Dim": PrintedColumn("widths", _widths, needed=True),
    "Hash Size": PrintedColumn("num_embeddings", whole_number, needed=True),
    "Ranks": PrintedColumn("ranks", _ranks, needed=True),
    "Batch Sizes": PrintedColumn("batch_sizes", _batch_sizes),
}
"""By heading, without ``Sum`` before it and what is in brackets."""


def heading(text: str) -> str:
    """Return a printed heading as ``COLUMNS`` has it."""
    return re.sub(r"^Sum | \(.*", "", text)
