"""Reading planner statistics of a log needs no torchrec, but for the one test that makes them."""

import gzip
import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from machines import topology
from needed import needs_torchrec
from printouts import MEMORY, printout

from costmodel.base.errors import InputError
from costmodel.base.units import GIB
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DataType, Pooling
from costmodel.memory.rank_memory import usable_bytes
from planner.files.plans import PlanFile, planned_topology
from planner.files.profiles import load_profile
from planner.torchrec.printed_plan import printed_plan, weight_type
from planner.torchrec.printed_rows import find_printouts
from planner.torchrec.printed_statistics import parse_statistics, read_statistics
from planner.verbs.loading import judge

PROFILE = "a100-sxm-80gb"
LINES = printout(
    {"FQN": "over.first"},
    {"FQN": "over.second", "Sharding": "CW", "Emb Dim (CW Dim)": "128 (32)", "Ranks": "3,3,5,7"},
)


def read(
    lines: Sequence[str], nodes: int | None = None, **types: DataType
) -> tuple[PlanFile, tuple[str, ...]]:
    stats = parse_statistics("\n".join(lines), "log")
    return printed_plan(stats, load_profile(PROFILE), PROFILE, nodes=nodes, **types)


def problems(lines: Sequence[str]) -> list[tuple[int | None, str]]:
    with pytest.raises(InputError) as refused:
        read(lines)
    return [(problem.line, problem.message) for problem in refused.value.problems]


def wrapped(lines: Sequence[str], width: int, prefix: str = "") -> list[str]:
    return [
        prefix + line[start : start + width]
        for line in lines
        for start in range(0, len(line), width)
    ]


LOGS: dict[str, Callable[[Sequence[str]], Sequence[str]]] = {
    "as it is": lambda lines: lines,
    "times before": lambda lines: [
        f"I0101 12:00:0{n % 10}] {line}" for n, line in enumerate(lines)
    ],
    "a # before": lambda lines: [f"[worker#3] {line}" for line in lines],
    "JSON around": lambda lines: [f'{{"log":"{line}\\n","stream":"stderr"}}' for line in lines],
    "colours": lambda lines: [f"\x1b[32m{line}\x1b[0m" for line in lines],
    "others between": lambda lines: [each for line in lines for each in (line, "step #3 of 9", "")],
    "wrapped at 80": lambda lines: wrapped(lines, 80),
    "wrapped, blanks cut": lambda lines: [line.rstrip() for line in wrapped(lines, 80)],
    "wrapped, times before": lambda lines: wrapped(lines, 100, "12:00:01 "),
    "wrapped before the last": lambda lines: wrapped(lines, len(lines[0]) - 1),
    "wrapped once": lambda lines: wrapped(lines, len(lines[0]) // 2 + 1),
}


@pytest.mark.parametrize("log", LOGS)
def test_logs_of_all_kinds_say_the_same(log: str) -> None:
    told = ["starting job #5", "#" * 50, *LOGS[log](LINES), "#" * 20, "done"]
    assert read(told)[0].plan == read(LINES)[0].plan


def test_the_last_of_several_printouts_is_read() -> None:
    other = printout({"FQN": "over.third"})
    file, said = read([*LINES, "", *other])
    assert [table.name for table in file.workload.tables] == ["third"]
    assert any("2 printouts: this is the last, of line" in text for text in said)


def test_a_table_is_what_its_row_says() -> None:
    # 3 features of 2.5 + 1 + 4 ids, one of 128 samples where the job has 256: shares of 1, 1, 0.5
    row = {
        "FQN": "a.b.c", "Compute Kernel": "fused_uvm_caching", "Cache Load Factor": "0.3",
        "Sum Pooling Factor": "7.5", "Num Indices": "7.5", "Sum Num Poolings": "3.0",
        "Features": "3", "Weighted": "weighted", "Batch Sizes": "256 * 2, 128",
    }  # fmt: skip
    unpooled = {"FQN": "a.d", "Output": "sequence", "Sharding": "RW", "Ranks": "0-7"}
    file, _ = read(printout(row, unpooled))
    cached, sequence = file.workload.tables
    assert (cached.name, cached.num_embeddings, cached.embedding_dim) == ("c", 1_000_000, 64)
    assert cached.pooling_factor == pytest.approx(7.5 * 2.5 / 3)
    assert cached.num_bags == pytest.approx(2.5, rel=1e-5)
    assert cached.num_features == 3
    assert cached.weighted
    assert not sequence.weighted
    assert sequence.pooling is Pooling.NONE
    assert file.workload.local_batch_size == 256
    sharding = file.plan.table("c")
    assert sharding.compute_kernel is ComputeKernel.FUSED_UVM_CACHING
    assert sharding.cache_load_factor == 0.3
    assert file.plan.table("d").ranks == tuple(range(8))
    assert file.torchrec is not None
    assert file.torchrec["tables"]["c"] == {"module": "a.b", "table": "c"}


SHARDED = {
    "DP": ("64", "0-7", ShardingType.DATA_PARALLEL, tuple(range(8))),
    "TW": ("64", "6", ShardingType.TABLE_WISE, (6,)),
    "RW": ("64", "0-7", ShardingType.ROW_WISE, tuple(range(8))),
    "CW": ("128 (32)", "1,1,2,7", ShardingType.COLUMN_WISE, (1, 1, 2, 7)),
    "TWRW": ("64", "4-7", ShardingType.TABLE_ROW_WISE, (4, 5, 6, 7)),
    "TWCW": ("128 (64)", "5,7", ShardingType.TABLE_COLUMN_WISE, (5, 7)),
    "GS": (
        "96 (32)", "0,0,1,1,2,2,3,3,4,5,6,7", ShardingType.GRID_SHARD,
        (0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARDED)
def test_every_sharding_type_is_read(name: str) -> None:
    columns, ranks, kind, expected = SHARDED[name]
    row = {
        "Sharding": name, "Emb Dim (CW Dim)": columns, "Ranks": ranks,
        "Compute Kernel": "dense" if name == "DP" else "fused",
        "Storage (HBM, DDR, SSD)": "(9.0 GB, 0.0 GB, 0.0 GB)",
    }  # fmt: skip
    file, _ = read(printout(row), nodes=2)
    (sharding,) = file.plan.tables
    assert (sharding.sharding_type, sharding.ranks) == (kind, expected)
    assert judge(file).report.step_time > 0  # which checks plan and memory


def test_tables_within_a_node_say_how_large_it_is() -> None:
    file, _ = read(printout({"Sharding": "TWRW", "Ranks": "4-7"}))
    assert file.plan.local_world_size == 4
    assert read(printout({}))[0].plan.local_world_size == 8  # as the profile's nodes


def test_memory_is_what_is_printed_to_be_left() -> None:
    file, said = read(printout({}))
    # 68 of 80 GiB are left by the reservation, 3 by dense parameters and 1 by inputs of them: 64
    assert usable_bytes(file.workload, planned_topology(file)) == pytest.approx(64 * GIB)
    assert any(text.startswith("64.0 GiB of a rank are printed") for text in said)
    tight = ["   HBM: 4.5 GB, DDR: 128.0 GB" if "68.0" in line else line for line in MEMORY]
    large = {"Hash Size": "100000000", "Storage (HBM, DDR, SSD)": "(24.0 GB, 0.0 GB, 0.0 GB)"}
    file, said = read(printout(large, memory=tight))
    assert any("by our models the plan takes 24" in text for text in said)
    assert judge(file).report.step_time > 0


@pytest.mark.parametrize(
    ("storage", "kind"),
    # a million rows of 64 columns: 64e6 elements, 0.238 GiB of fp32, 0.119 GiB of fp16
    [("0.239", DataType.FP32), ("0.236", DataType.FP16), ("0.117", DataType.INT8)],
)
def test_sizes_tell_the_widest_type_of_weights(storage: str, kind: DataType) -> None:
    row = {"Storage (HBM, DDR, SSD)": f"({storage} GB, 0.0 GB, 0.0 GB)"}
    stats = parse_statistics("\n".join(printout(row)), "log")
    assert weight_type(stats) is kind
    file, said = read(printout(row))
    assert file.workload.output_type is (DataType.FP32 if kind is DataType.INT8 else kind)
    assert any(f"not printed: {kind}, the widest" in text for text in said)
    told, said = read(printout(row), data_type=DataType.BF16, output_type=DataType.FP32)
    assert (told.workload.tables[0].data_type, told.workload.output_type) == ("bf16", "fp32")
    assert not any("widest" in text for text in said)


def test_printed_weights_tell_it_closer() -> None:
    # the table's own storage would leave room for fp32
    weights = ("Compute Kernels Embedding Weights:", "   fused: 0.119 GB", "")
    stats = parse_statistics("\n".join(printout({}, memory=(*weights, *MEMORY))), "log")
    assert weight_type(stats) is DataType.FP16


def test_numbers_too_small_to_print_are_named() -> None:
    file, said = read(printout({"Num Indices": "0.0", "Sum Num Poolings": "0.0"}))
    assert file.workload.tables[0].pooling_factor == 0.00025
    assert any("`sparse.ebc.item` are printed as 0.0" in text for text in said)


def test_tables_of_unknown_kernels_are_left_out_and_named() -> None:
    file, said = read(printout({}, {"FQN": "sparse.big", "Compute Kernel": "key_value"}))
    assert [table.name for table in file.workload.tables] == ["item"]
    assert file.torchrec is not None
    assert file.torchrec["left_out"] == ["sparse.big"]
    assert any("key_value: `sparse.big` are left out" in text for text in said)
    assert (
        "no table with a compute kernel"
        in problems(printout({"Compute Kernel": "key_value"}))[0][1]
    )


def test_a_path_printed_twice_makes_two_tables() -> None:
    file, said = read(printout({}, {"Hash Size": "5"}))
    names = [table.name for table in file.workload.tables]
    assert names == ["sparse.ebc.item", "sparse.ebc.item (2)"]
    assert file.torchrec is None
    assert any("several tables are printed under one path" in text for text in said)


def test_what_is_cut_or_missing_is_refused_with_its_place() -> None:
    first = next(n for n, line in enumerate(LINES, start=1) if "over.first" in line)
    assert problems([line[:120] for line in LINES])[0][1].startswith(
        "the table of parameters has no column `Pooling Factor`"
    )
    cut = list(LINES)
    cut[first - 1] = cut[first - 1][:150]
    ((line, message),) = problems(cut)
    assert line == first
    assert message.startswith("the row is cut off: it ends before `")
    without = [line for line in LINES if "over.first" not in line]
    assert "counts 2 tables and has rows of 1" in problems(without)[0][1]
    assert "the log ends before the printout's batch size" in problems(LINES[:first])[0][1]
    rank = next(n for n, line in enumerate(LINES) if line.split()[1:2] == ["3"])
    ((line, message),) = problems(LINES[:rank] + LINES[rank + 1 :])
    assert (line, message) == (rank + 1, "the row of rank 3 is missing")
    shifted = [
        line.replace("over.first   ", "over.first x ") if "over.first" in line else line
        for line in LINES
    ]
    assert "the columns of this row are not those of the table" in problems(shifted)[0][1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"Sharding": "XX"}, "`Sharding` must be one of DP, TW, RW"),
        ({"Ranks": "None"}, "`Ranks` are None: the planner found no plan"),
        ({"Ranks": "1;2"}, "`Ranks` must be ranks"),
        ({"Ranks": "9"}, "rank 9 is not among 8"),
        ({"Ranks": "1,2"}, "table_wise has 1 shard here, and ranks of 2 are given"),
        ({"Hash Size": "0"}, "`Hash Size` must be a whole number above 0"),
        ({"Emb Dim (CW Dim)": "wide"}, "`Emb Dim` must be columns"),
        ({"Emb Dim (CW Dim)": "6"}, "embedding_dim must be a multiple of 4"),
        (
            {"Sharding": "CW", "Emb Dim (CW Dim)": "96 (64)", "Ranks": "1,2"},
            "96 columns are not shards of 64",
        ),
        ({"Num Indices": "nan"}, "`Num Indices` must be a number"),
        ({"Storage (HBM, DDR, SSD)": "1 GB"}, "`Storage` must be sizes in GB"),
        ({"Batch Sizes": "two"}, "`Batch Sizes` must be a whole number"),
    ],
)
def test_what_no_plan_has_is_refused(row: dict[str, str], message: str) -> None:
    lines = printout(row)
    ((line, said),) = problems(lines)
    assert message in said
    assert line == next(n for n, each in enumerate(lines, start=1) if "sparse.ebc.item" in each)


def test_logs_without_a_whole_printout_say_so() -> None:
    assert problems(["nothing", "#" * 90, "# ---- #", "#" * 90]) == [
        (None, "no planner statistics are in this log")
    ]
    tables = [line for line in LINES if "Parameter Info" not in line]
    assert "there is no table of parameters" in problems(tables)[0][1]
    ranks = [line for line in LINES if "HBM (GB)" not in line]
    assert "there is no table of ranks" in problems(ranks)[0][1]


def test_a_log_may_be_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode()))
    assert len(read_statistics(path).tables) == 2
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(InputError, match="cannot be unpacked"):
        read_statistics(path)


def test_rows_know_their_lines() -> None:
    (rows,) = find_printouts("\n".join(["job", *LINES]))
    assert rows[0].text.strip() == "--- Planner Statistics ---"
    assert [row.line for row in rows[:3]] == [3, 4, 5]


@needs_torchrec
def test_what_torchrec_prints_is_its_plan() -> None:
    from torch import nn
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
    from torchrec.distributed.planner import stats as torchrec_stats
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
    from torchrec_cases import QUIET, TYPES, AnySharder, Topology, bags, table

    from planner.torchrec import TableLocation, from_torchrec

    ebc = bags(*(table(f"t{i}", rows=1000 + i, dim=64 if i == 2 else 128) for i in range(7)))
    model = nn.ModuleDict({"ebc": ebc, "w": bags(table("w0"), is_weighted=True)})
    constraints = {
        name: ParameterConstraints(
            sharding_types=[kind], min_partition=32, pooling_factors=[3.5 + number]
        )
        for number, (name, kind) in enumerate(zip([f"t{i}" for i in range(7)], TYPES, strict=True))
    }
    log = logging.StreamHandler(stream := io.StringIO())
    torchrec_stats.logger.addHandler(log)
    level = torchrec_stats.logger.level
    torchrec_stats.logger.setLevel(logging.INFO)
    try:
        made = EmbeddingShardingPlanner(
            topology=Topology(world_size=8, local_world_size=4, compute_device="cuda", **QUIET),
            batch_size=256,
            constraints=constraints,
            storage_reservation=FixedPercentageStorageReservation(0.15),
        ).plan(model, [AnySharder()])
    finally:
        torchrec_stats.logger.removeHandler(log)
        torchrec_stats.logger.setLevel(level)
    file, _ = read(stream.getvalue().splitlines())
    places = {f"t{i}": TableLocation(module="ebc", table=f"t{i}") for i in range(7)}
    places["w0"] = TableLocation(module="w", table="w0")
    machine = replace(topology(8), local_world_size=4)
    theirs = from_torchrec(made, places, file.workload, machine)
    assert file.plan.local_world_size == 4
    for ours in file.plan.tables:
        other = theirs.table(ours.table)
        assert (ours.sharding_type, ours.compute_kernel) == (
            other.sharding_type,
            other.compute_kernel,
        )
        assert sorted(ours.ranks) == sorted(other.ranks)  # the order of blocks is not printed
        sizes = ({(s.num_rows, s.num_columns) for s in each.shards} for each in (ours, other))
        assert len(set(map(frozenset, sizes))) == 1
    assert [t.pooling_factor for t in sorted(file.workload.tables, key=lambda t: t.name)] == [
        *(3.5 + number for number in range(7)),
        1.0,
    ]
    assert file.workload.table("w0").weighted
