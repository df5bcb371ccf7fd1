"""The least and the most that numbers and lists of every file may be, and what is next to them."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from jsonschema import Draft202012Validator

from costmodel.base import limits
from costmodel.base.errors import InputError
from costmodel.operators.operator_list import BatchSize
from planner.files.dense import parse_operators
from planner.files.plans import parse_plan_file
from planner.files.profiles import parse_profile
from planner.files.schemas import schema
from planner.files.workload_reading import parse_workload

Keys = tuple[str | int, ...]


class Ends(NamedTuple):
    """Values of a field: the first below, the least, the most, and the first above."""

    below: Any
    least: Any
    most: Any
    above: Any


WORKLOAD: dict[str, Any] = {
    "dense": {"top_mlp": [1] * limits.MOST_LAYERS},
    "defaults": {},
    "tables": [{"name": "a", "num_embeddings": 8, "embedding_dim": 8}],
}
TABLE: Keys = ("tables", 0)
IDS = Ends(-1e-9, 0.0, limits.MOST_IDS, limits.MOST_IDS + 1)
SOME_IDS = IDS._replace(below=0.0, least=1e-9)
DIM = Ends(0, 4, limits.MOST_COLUMNS, limits.MOST_COLUMNS + 4)
WIDTH = Ends(0, 1, limits.MOST_WIDTH, limits.MOST_WIDTH + 1)
PARAMETERS = Ends(-1, 0, limits.MOST_PARAMETERS, limits.MOST_PARAMETERS + 1)


def each_of(ends: Ends, make: Callable[[Any], Any]) -> Ends:
    """Return the ends of what holds a number."""
    return Ends(*map(make, ends))


def counted(lookups: float) -> Any:  # noqa: ANN401 - plain data
    return {"unique_fraction": 0.5, "num_lookups": lookups}


OF_WORKLOADS: dict[Keys, Ends] = {
    (*TABLE, "name"): Ends("", "a", "a" * limits.LONGEST_NAME, "a" * (limits.LONGEST_NAME + 1)),
    (*TABLE, "num_embeddings"): Ends(0, 1, limits.MOST_ROWS, limits.MOST_ROWS + 1),
    (*TABLE, "embedding_dim"): DIM,
    (*TABLE, "min_shard_dim"): DIM,
    (*TABLE, "pooling_factor"): SOME_IDS,
    (*TABLE, "bags_per_sample"): SOME_IDS,
    (*TABLE, "pooling_std"): IDS,
    (*TABLE, "longest_bag"): IDS,
    (*TABLE, "cache_load_factor"): Ends(0.0, 1e-9, 1.0, 1.0 + 1e-9),
    (*TABLE, "ranks"): Ends([-1], [0], [limits.MOST_RANKS - 1], [limits.MOST_RANKS]),
    (*TABLE, "inputs", "zipf"): Ends(-1e-9, 0.0, 5.0, 5.0 + 1e-9),
    (*TABLE, "inputs"): Ends(counted(0.9), counted(1.0), counted(1e15), counted(1.1e15)),
    (*TABLE, "inputs", "reuse_histogram"): each_of(
        Ends(0, 1, limits.MOST_BINS, limits.MOST_BINS + 1), lambda count: [1.0] * count
    ),
    ("defaults", "inputs", "reuse_histogram"): each_of(
        Ends(-1e-9, 0.0, 1e18, 1.1e18), lambda share: [1.0, share]
    ),
    ("defaults", "inputs"): each_of(
        Ends(0.0, 1e-9, 1.0, 1.0 + 1e-9), lambda share: {"unique_fraction": share}
    ),
    ("dense", "num_dense_features"): WIDTH,
    ("dense", "bottom_mlp"): each_of(WIDTH, lambda width: [width]),
    ("dense", "top_mlp"): Ends(
        [], [1], [1] * limits.MOST_LAYERS, [1] * (limits.MOST_LAYERS + 1)
    ),
    ("dense", "cross_layers"): Ends(-1, 0, limits.MOST_LAYERS, limits.MOST_LAYERS + 1),
    ("dense", "cross_rank"): WIDTH,
    ("dense", "model_parameters"): PARAMETERS,
    ("dense", "read_parameters"): PARAMETERS,
    ("dense", "most_products"): Ends(-1e-9, 0.0, 1e18, 1.1e18),
    ("local_batch_size",): Ends(0, 1, limits.MOST_SAMPLES, limits.MOST_SAMPLES + 1),
    ("gradient_accumulation_steps",): Ends(
        0, 1, limits.MOST_ACCUMULATED, limits.MOST_ACCUMULATED + 1
    ),
    ("index_bytes",): Ends(5, 4, 8, 9),
    ("length_spread",): Ends(-1e-9, 0.0, 1.0, 1.0 + 1e-9),
    ("restore_site",): Ends(-1, 0, limits.MOST_LAYERS - 1, limits.MOST_LAYERS),
}  # fmt: skip

SHARD: dict[str, Any] = {
    "rank": 0, "row_offset": 0, "num_rows": 8, "column_offset": 0, "num_columns": 8,
}  # fmt: skip
PLAN: dict[str, Any] = {
    "schema_version": 1, "hardware": "h100-sxm", "world_size": 1, "local_world_size": 1,
    "tables": [
        {"name": "a", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [SHARD]}
    ],
    "memory": {"rank_bytes": 9e9, "host_bytes": 9e9},
    "workload": {"tables": WORKLOAD["tables"]},
}  # fmt: skip
FIRST: Keys = (*TABLE, "shards", 0)
ROWS = Ends(-1, 0, limits.MOST_ROWS, limits.MOST_ROWS + 1)
OF_PLANS: dict[Keys, Ends] = {
    ("seed",): Ends(-(2**63) - 1, -(2**63), 2**63 - 1, 2**63),
    ("step_time_s",): Ends(0.9e-9, 1e-9, 1e9, 1.1e9),
    ("memory", "rank_bytes"): Ends(-1.0, 0.0, 1e21, 1.1e21),
    (*TABLE, "cache_load_factor"): Ends(0.0, 1e-9, 1.0, 1.0 + 1e-9),
    (*TABLE, "shards"): Ends([], [SHARD], [SHARD] * 2, [3]),
    (*FIRST, "row_offset"): ROWS,
    (*FIRST, "num_rows"): ROWS,
    (*FIRST, "column_offset"): Ends(-1, 0, limits.MOST_COLUMNS, limits.MOST_COLUMNS + 1),
    (*FIRST, "num_columns"): Ends(0, 1, limits.MOST_COLUMNS, limits.MOST_COLUMNS + 1),
}

TENSOR: dict[str, Any] = {"sizes": [2], "data_type": "float32", "storage": 0}
DENSE: dict[str, Any] = {
    "schema_version": 1,
    "operators": [{"name": "aten::relu", "direction": "forward", "outputs": [TENSOR]}],
    "parameters": [{"name": "w", "num_elements": 3, "data_type": "float32"}],
    "embeddings": [{"name": "e", "tensor": TENSOR}],
    "recorded": {"samples": 2},
}
OUTPUT: Keys = ("operators", 0, "outputs", 0)
OF_DENSE: dict[Keys, Ends] = {
    ("recorded", "samples"): Ends(-1, 0, 2**24 * 1000, 2**24 * 1000 + 1),
    ("parameters", 0, "num_elements"): PARAMETERS,
    (*OUTPUT, "storage"): Ends(-(2**40), 1 - 2**40, 2**40 - 1, 2**40),
    (*OUTPUT, "sizes"): Ends([-1], [0], [10**15], [10**15 + 1]),
    (*OUTPUT, "sizes", 0): Ends(
        *({"sequences": [{"ids": each}]} for each in (-1.1e15, -1e15, 1e15, 1.1e15))
    ),
    (*OUTPUT, "expanded"): Ends([-1], [0], [0], [16]),
    ("operators", 0, "reads"): Ends([-1], [0], [0], [1]),
    ("operators",): Ends([], DENSE["operators"], DENSE["operators"] * 9, [3]),
    ("assumed",): Ends([3], [], ["a"] * 100, ["a"] * 101),
}  # fmt: skip

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "profile.yaml"
PROFILE: dict[str, Any] = yaml.load(CORPUS.read_text("utf-8"), Loader=yaml.CSafeLoader)
PROFILE["traced"] = {"operators": [], "kernels": [{"name": "k", "count": 1, "us": 1.0}]}
GEMM: Keys = ("gemm", "bf16")
UNALIGNED = {"efficiency": 0.1, "bandwidth_efficiency": 0.2}
COUNT = Ends(-1, 0, limits.MOST_COUNTED, limits.MOST_COUNTED + 1)
LEAST_TIME, MOST_TIME = "1e-15 s", "1e21 s"


def knots(number: int) -> list[list[float]]:
    return [[1.0 * each, 2.0 * each] for each in range(1, number + 1)]


def unaligned(number: int) -> list[dict[str, object]]:
    return [{"alignment_bytes": f"{8 >> each} B", **UNALIGNED} for each in range(number)]


OF_PROFILES: dict[Keys, Ends] = {
    ("gpus_per_node",): Ends(0, 1, 2**31, 2**31 + 1),
    ("gpu", "kernel_latency"): Ends("0 s", LEAST_TIME, MOST_TIME, "1.1e21 s"),
    ("gpu", "stream_correction"): Ends([[1.0]], knots(1), knots(64), knots(65)),
    ("host", "op_time"): Ends("-1 us", "0 us", MOST_TIME, "1.1e21 s"),
    ("host", "sync_time"): Ends("0.9e-15 s", LEAST_TIME, MOST_TIME, "1.1e21 s"),
    ("embedding", "sort_rate"): Ends(0, 0.5, 1e21, 1.1e21),
    ("embedding", "lookup_efficiency"): Ends(0, 1e-15, 10, 10.1),
    ("embedding", "overlap"): Ends(-0.1, 0, 1, 1.01),
    (*GEMM, "prologue_depth"): Ends(-1, 0, 1e21, 1.1e21),
    (*GEMM, "source"): Ends(" ", "a", "a" * 99, 3),
    (*GEMM, "error"): Ends(-0.1, 0, 10, 10.1),
    (*GEMM, "num_points"): COUNT,
    (*GEMM, "unaligned"): Ends([3], [], unaligned(4), unaligned(5)),
    (*GEMM, "tile_efficiency"): Ends([1] * 3, [1] * 4, [1] * 4, [1] * 5),
    (*GEMM, "shapes", 0): Ends([-1, 1], [0, 0], [1e21, 1e21], [1, 1.1e21]),
    (*GEMM, "shapes", 1): Ends([1], [1, 2], [1, 2], [1, 2, 3]),
    ("collectives", 0, "last_measured"): Ends(0, 1e-15, 1e21, 1.1e21),
    ("traced", "kernels", 0, "us"): Ends(-1, 0, 1e21, 1.1e21),
    ("traced", "kernels", 0, "count"): COUNT,
}


class Kind(NamedTuple):
    """A kind of files: a small one, its reader, and ends of its fields."""

    document: Any
    read: Callable[[str, str], object]
    ends: dict[Keys, Ends]


KINDS = {
    "workload": Kind(WORKLOAD, parse_workload, OF_WORKLOADS),
    "plan": Kind(PLAN, parse_plan_file, OF_PLANS),
    "dense": Kind(DENSE, parse_operators, OF_DENSE),
    "profile": Kind(PROFILE, parse_profile, OF_PROFILES),
}
SAID_BY_THE_READER = {
    ("dense", (*OUTPUT, "expanded")), ("dense", ("operators", 0, "reads")),
}  # fmt: skip
"""Whose ends follow from the rest of a file, which no schema can say."""


def placed(document: Any, keys: Keys, value: object) -> Any:  # noqa: ANN401 - plain data
    """Return a document with another value at a place."""
    made = here = deepcopy(document)
    for key in keys[:-1]:
        here = here.setdefault(key, {}) if isinstance(here, dict) else here[key]
    here[keys[-1]] = value
    return made


@pytest.mark.parametrize(
    ("name", "keys"),
    [(name, keys) for name, kind in KINDS.items() for keys in kind.ends],
    ids=lambda part: part if isinstance(part, str) else ".".join(map(str, part)),
)
def test_reader_and_schema_take_the_same(name: str, keys: Keys) -> None:
    kind = KINDS[name]
    validator = Draft202012Validator(schema(name))
    for value, is_usable in zip(kind.ends[keys], (False, True, True, False), strict=True):
        document = placed(kind.document, keys, value)
        if is_usable:
            kind.read(json.dumps(document), "a.json")
        else:
            with pytest.raises(InputError):
                kind.read(json.dumps(document), "a.json")
        says_more = (name, keys) in SAID_BY_THE_READER or name == "profile"
        assert is_usable <= validator.is_valid(document)
        assert says_more or validator.is_valid(document) is is_usable, value


def test_a_dense_model_may_leave_out_what_it_has_none_of() -> None:
    assert parse_operators(json.dumps(DENSE), "a.json").recorded == BatchSize(2)
