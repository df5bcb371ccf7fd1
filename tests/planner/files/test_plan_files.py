import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import plans, topologies, workloads

from costmodel.base.errors import InputError, PlanMismatchError
from costmodel.domain.plan import ComputeKernel, Shard, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.replica_groups import ReplicaGroups
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.files.plans import (
    PlanFile,
    _listed,
    dump_plan_file,
    load_plan_file,
    load_plan_hardware,
    parse_plan_file,
    plan_text,
    planned_topology,
)
from planner.files.profiles import dump_profile, load_profile

WORKLOAD = Workload(
    tables=(
        EmbeddingTable(name="a", num_embeddings=10, embedding_dim=8),
        EmbeddingTable(name="b", num_embeddings=20, embedding_dim=4),
    )
)
PLAN = ShardingPlan(
    tables=(
        TableSharding(
            table="a",
            sharding_type=ShardingType.COLUMN_WISE,
            compute_kernel=ComputeKernel.FUSED_UVM_CACHING,
            cache_load_factor=0.5,
            shards=(
                Shard(rank=0, row_offset=0, num_rows=10, column_offset=0, num_columns=4),
                Shard(rank=1, row_offset=0, num_rows=10, column_offset=4, num_columns=4),
            ),
        ),
        TableSharding(
            table="b",
            sharding_type=ShardingType.TABLE_WISE,
            shards=(Shard(rank=1, row_offset=0, num_rows=20, column_offset=0, num_columns=4),),
        ),
    ),
    world_size=2,
    local_world_size=2,
)
FILE = PlanFile(
    plan=PLAN, workload=WORKLOAD, hardware="h100-sxm", sharder="greedy", seed=3, step_time=0.0057
)


def changed(**values: object) -> str:
    return plan_text(dump_plan_file(FILE) | values)


def problems_of(text: str) -> list[tuple[str, int | None]]:
    with pytest.raises(InputError) as caught:
        parse_plan_file(text, "plan.json")
    return [(problem.message, problem.line) for problem in caught.value.problems]


GROUPS = ReplicaGroups(num_groups=4, ranks_per_node=8, sync_interval=10)
"""Of two ranks: every fourth rank of a node of eight."""


def test_a_plan_of_one_of_several_groups_loads_as_it_was() -> None:
    file = dataclasses.replace(FILE, replicas=GROUPS)
    text = plan_text(dump_plan_file(file))
    assert parse_plan_file(text, "plan.json") == file
    assert planned_topology(file).num_ranks == 8
    assert '"replicas"' not in plan_text(dump_plan_file(FILE))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_groups": 1}, "`num_groups` must be greater than or equal to 2"),
        ({"num_groups": 3}, "a group of 2 ranks, 3 apart, would have more"),
        ({"num_groups": 8}, "local_world_size is 2, and these groups have 1 ranks on a node"),
        ({"num_groups": 2056}, "4,112 ranks in all, and 4,096 can be planned for"),
        ({"sync_interval": 0}, "`sync_interval` must be greater than or equal to 1"),
    ],
)
def test_groups_that_cannot_be_are_refused(change: dict[str, int], message: str) -> None:
    written = dataclasses.asdict(GROUPS) | change
    (problem,) = problems_of(changed(replicas=written))
    assert message in problem[0]


def test_a_file_loads_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(changed(), encoding="utf-8")
    assert load_plan_file(tmp_path / "plan.json") == FILE


def test_the_step_of_the_first_version_was_another_one() -> None:
    assert parse_plan_file(changed(schema_version=2), "plan.json").step_time == 0.0057
    assert parse_plan_file(changed(schema_version=1), "plan.json").step_time is None


def test_keys_are_those_of_torchrec_and_the_report() -> None:
    data = dump_plan_file(FILE)
    assert data["schema_version"] == 2
    assert data["step_time_s"] == 0.0057
    assert data["tables"][0] == {
        "name": "a",
        "sharding_type": "column_wise",
        "compute_kernel": "fused_uvm_caching",
        "cache_load_factor": 0.5,
        "shards": [
            {"rank": 0, "row_offset": 0, "num_rows": 10, "column_offset": 0, "num_columns": 4},
            {"rank": 1, "row_offset": 0, "num_rows": 10, "column_offset": 4, "num_columns": 4},
        ],
    }


REPLICATED: dict[str, Any] = {
    "name": "b",
    "sharding_type": "data_parallel",
    "compute_kernel": "dense",
    "shards": [
        {
            "rank": 0,
            "num_ranks": 2,
            "row_offset": 0,
            "num_rows": 20,
            "column_offset": 0,
            "num_columns": 4,
        }
    ],
}


def one_by_one(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table with a shard for every rank, as files had all of them."""
    shards = [
        {**{key: value for key, value in shard.items() if key != "num_ranks"}, "rank": rank}
        for shard in table["shards"]
        for rank in range(shard["rank"], shard["rank"] + shard.get("num_ranks", 1))
    ]
    return {**table, "shards": shards}


def test_copies_are_one_entry_and_may_be_one_for_every_rank() -> None:
    first = dump_plan_file(FILE)["tables"][0]
    together = parse_plan_file(changed(tables=[first, REPLICATED]), "plan.json")
    alone = parse_plan_file(changed(tables=[first, one_by_one(REPLICATED)]), "plan.json")
    assert together == alone
    assert together.plan.table("b").ranks == (0, 1)
    assert dump_plan_file(alone)["tables"] == [first, REPLICATED]


@pytest.mark.parametrize(
    ("changes", "more", "message", "at"),
    [
        ({"num_ranks": 3}, {}, "rank 2 of table `b` does not exist", "3, "),
        ({"rank": 1}, {}, "rank 2 of table `b` does not exist", "2, "),
        ({"rank": 2, "num_ranks": 1}, {}, "rank 2 of table `b` does not exist", "2, "),
        (
            {"num_ranks": 0},
            {},
            "`num_ranks` must be greater than or equal to 1, got the number 0",
            "0, ",
        ),
        (
            {},
            {"sharding_type": "table_wise"},
            "table `b` is table_wise, and only data_parallel has copies on 2 ranks",
            "2, ",
        ),
        (
            {},
            {"shards": [REPLICATED["shards"][0], REPLICATED["shards"][0]]},
            "a shard of table `b` on 2 ranks is not its only one",
            "2, ",
        ),
    ],
)
def test_copies_where_none_can_be_are_refused(
    changes: dict[str, int], more: dict[str, object], message: str, at: str
) -> None:
    table = {**REPLICATED, "shards": [{**REPLICATED["shards"][0], **changes}], **more}
    first = dump_plan_file(FILE)["tables"][0]
    text = changed(tables=[first, table])
    with pytest.raises(InputError) as caught:
        parse_plan_file(text, "plan.json")
    problem = caught.value.problems[0]
    assert (problem.message, problem.line) == (message, 11)
    assert text.splitlines()[10][(problem.column or 0) - 1 :].startswith(at)
    assert "does not exist" not in message or problem.hint == "the plan has ranks 0 to 1"


def test_the_text_has_one_table_per_line() -> None:
    tables = [{"name": "a", "shards": [{"rank": 0}]}, {"name": "b"}]
    workload = {"name": "w", "dense": {"top_mlp": 1}, "tables": [{"name": "a"}], "empty": []}
    text = """\
{
  "seed": null,
  "tables": [
    {"name": "a", "shards": [{"rank": 0}]},
    {"name": "b"}
  ],
  "ranks": [1, 2],
  "memory": {"rank_bytes": 2},
  "workload": {
    "name": "w",
    "dense": {"top_mlp": 1},
    "tables": [
      {"name": "a"}
    ],
    "empty": []
  }
}
"""
    data = {
        "seed": None, "tables": tables, "ranks": [1, 2], "memory": {"rank_bytes": 2},
        "workload": workload,
    }  # fmt: skip
    assert plan_text(data) == text


def test_a_report_may_add_keys() -> None:
    text = changed(breakdown={"lookup": 0.1}, ranks=[{"rank": 0}], peak_memory_bytes=5)
    assert parse_plan_file(text, "plan.json") == FILE


@settings(max_examples=40)
@given(st.data())
def test_any_plan_loads_as_it_was(data: st.DataObject) -> None:
    workload, topology = data.draw(workloads()), data.draw(topologies())
    plan = data.draw(plans(workload, topology))
    file = PlanFile(plan=plan, workload=workload, hardware=topology.hardware.name)
    text = plan_text(dump_plan_file(file))
    assert json.loads(text) == dump_plan_file(file)
    assert parse_plan_file(text, "plan.json") == file
    data = {**json.loads(text), "tables": [one_by_one(each) for each in json.loads(text)["tables"]]}
    assert parse_plan_file(plan_text(data), "plan.json") == file


def test_problems_of_a_plan_have_positions() -> None:
    text = changed().replace('"num_rows": 20', '"num_rows": -1')
    assert problems_of(text) == [
        ("`num_rows` must be greater than or equal to 0, got the number -1", 11)
    ]
    assert problems_of(changed().replace('"rank": 0', '"rank": 7')) == [
        ("rank 7 of table `a` does not exist", 10)
    ]


def test_an_unknown_sharding_type_has_a_suggestion() -> None:
    text = changed().replace("column_wise", "colum_wise")
    assert problems_of(text) == [("unknown sharding type `colum_wise`", 10)]


def test_a_broken_workload_is_reported_where_it_stands() -> None:
    ((message, line),) = problems_of(changed().replace('"embedding_dim": 8', '"embedding_dim": 9'))
    assert message == "`embedding_dim` must be a multiple of 4, got 9"
    assert '"embedding_dim": 9' in changed().replace(": 8", ": 9").splitlines()[(line or 0) - 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("[1]", "a plan file must be a JSON object"),
        ("{}", "not a plan file: it has no `tables`"),
        ("{", "not JSON: expecting property name enclosed in double quotes"),
        (changed(schema_version=9), "schema_version is 9, and this planner reads 1 and 2"),
        (changed(local_world_size=3), "world_size 2 is not a multiple of local_world_size 3"),
        (changed(workload=[]), "a workload must be a mapping, got a list"),
        (changed(hardware=None), "`hardware` must be text, got nothing"),
    ],
)
def test_what_is_no_plan_file(text: str, message: str) -> None:
    assert [found for found, _ in problems_of(text)] == [message]


def test_a_version_that_is_no_json_number_is_refused() -> None:
    text = plan_text(dump_plan_file(FILE)).replace('"schema_version": 2', '"schema_version": NaN')
    (found,) = problems_of(text)
    assert found[0].startswith("schema_version is nan, and this planner reads")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (PLAN.tables[:1], "leaves out: `b`"),
        ((*PLAN.tables, PLAN.tables[0]), "shards more than once: `a`"),
        (
            (*PLAN.tables, dataclasses.replace(PLAN.tables[1], table="c")),
            "shards tables its workload does not have: `c`",
        ),
    ],
)
def test_a_plan_for_other_tables_is_refused(
    tables: tuple[TableSharding, ...], message: str
) -> None:
    file = dataclasses.replace(FILE, plan=dataclasses.replace(PLAN, tables=tables))
    with pytest.raises(PlanMismatchError) as caught:
        parse_plan_file(plan_text(dump_plan_file(file)), "plan.json")
    assert str(caught.value) == f"plan.json: the plan {message}"


def test_a_profile_beside_the_plan_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = tmp_path / "made", tmp_path / "other"
    made.mkdir()
    other.mkdir()
    (made / "plan.json").write_text(changed(hardware="mine.yaml"))
    (made / "mine.yaml").write_text(dump_profile(load_profile("a100-sxm-80gb")))
    monkeypatch.chdir(made)
    assert load_plan_file("plan.json").hardware == "mine.yaml"
    monkeypatch.chdir(other)
    file = load_plan_file("../made/plan.json")
    assert load_plan_hardware(file).gpu.name == load_profile("a100-sxm-80gb").gpu.name
    (other / "mine.yaml").write_text("what is here comes first")
    assert load_plan_file("../made/plan.json").hardware == "mine.yaml"
    (made / "plan.json").write_text(changed(hardware="h100-sxm"))
    (made / "h100-sxm").write_text("names of profiles come before all files")
    assert load_plan_file("../made/plan.json").hardware == "h100-sxm"


@pytest.mark.parametrize("hardware", ["/dev/zero", "/", "a\0b"])
def test_hardware_that_is_no_file_is_not_read(hardware: str) -> None:
    with pytest.raises(InputError, match="must be a profile's name or its file"):
        parse_plan_file(changed(hardware=hardware), "plan.json")


def test_a_long_name_of_hardware_is_cut() -> None:
    ((said, _),) = problems_of(changed(hardware=f"a\0{'b' * 99}"))
    assert said.endswith(f"got `a\0{'b' * 78}`")


@pytest.mark.parametrize(
    ("names", "said"),
    [("", ()), ("ab", ("lacks: `a`, `b`",)), ("abcde", ("lacks: `a`, `b`, `c`, `d`, `e`",)),
     ("abcdefg", ("lacks: `a`, `b`, `c`, `d`, `e` and 2 more",))],
)  # fmt: skip
def test_five_tables_are_named_and_the_others_counted(names: str, said: tuple[str, ...]) -> None:
    assert _listed("lacks", list(names)) == said
