"""Tables that no cost model knows, or that have a plan already, and the rest around them."""

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, ShardingOption
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import KeyValueParams, ShardingPlan
from torchrec.modules.embedding_configs import EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingCollection
from torchrec.types import DataType
from torchrec_cases import (
    META,
    SHARDERS,
    Wrapped,
    bags,
    gpus,
    managed_collision,
    planner,
    solved,
    table,
)

from costmodel.domain.plan import ShardingType
from planner.torchrec import IterationTimePerfModel, IterationTimePlanner, Solution
from planner.torchrec.error_types import INPUT_VALIDATION, INVALID_RANK_ASSIGNMENT

KEY_VALUE = ParameterConstraints(compute_kernels=["key_value"], sharding_types=["row_wise"])


def test_a_key_value_table_gets_torchrecs_option_and_leaves_less_memory() -> None:
    module = bags(table("kv", rows=10_000_000), table("a"))
    around = planner(constraints={"kv": KEY_VALUE})
    plan = around.plan(module, SHARDERS).plan[""]
    assert plan["kv"].compute_kernel == "key_value"
    assert plan["kv"].ranks == [0, 1, 2, 3]
    found = solved(around)
    assert [each.name for each in found.workload.tables] == ["a"]
    assert found.other_time > 0
    # weights are on the SSD; inputs, outputs and the cache in HBM
    assert len(found.topology.withheld_bytes) == 4
    assert min(found.topology.withheld_bytes) > 4 * 64 * 64 * 4


def test_all_default_sharders_modules_are_planned_together() -> None:
    modules = pytest.importorskip("torchrec.modules.pec_embedding_modules")
    if not any("PEC" in type(each).__name__ for each in get_default_sharders()):
        pytest.skip("the installed torchrec shards no PEC module unasked")
    sequence = EmbeddingCollection(
        tables=[
            EmbeddingConfig(name="p", num_embeddings=100, embedding_dim=64, feature_names=["p"])
        ],
        device=META,
    )
    model = torch.nn.ModuleDict({
        "plain": bags(table("b")),
        "hashed": managed_collision(),
        "collided": modules.PECEmbeddingCollection(sequence),
        "wrapped": Wrapped("meta"),
    })
    made = planner()
    plan = made.plan(model, get_default_sharders()).plan
    assert {path: sorted(tables) for path, tables in plan.items()} == {
        "plain": ["b"],
        "hashed": ["a"],
        "collided": ["p"],
        "wrapped.processed": ["t0", "t1", "t2"],
        "wrapped.sequence": ["s3", "s4", "s5"],
    }
    assert plan["hashed"]["a"].sharding_type == plan["collided"]["p"].sharding_type == "row_wise"
    assert all(not each.splits_rows for each in types_of(solved(made), "t0", "t1", "t2"))
    assert solved(made).workload.table("t0").weighted
    # the tables of ids: 3 x 1000 numbers, of which each rank has a quarter, and 40 weights
    withheld = solved(made).topology.withheld_bytes
    assert len(set(withheld)) == 1
    assert withheld[0] > 3 * 1000 * 8 / 4


def types_of(found: Solution, *tables: str) -> list[ShardingType]:
    return [found.plan.table(name).sharding_type for name in tables]


def test_tables_that_have_a_plan_keep_it() -> None:
    module = bags(*[table(f"t{i}", dim=64) for i in range(4)])
    kinds = {
        "t0": ParameterConstraints(sharding_types=["row_wise"]),
        "t1": ParameterConstraints(sharding_types=["column_wise"], min_partition=16),
        "t2": ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused_uvm"]),
    }
    whole = planner(constraints=kinds).plan(module, SHARDERS).plan[""]
    given = ShardingPlan({"": {name: whole[name] for name in ("t0", "t1", "t2")}})
    made = planner(fixed_plan=given)
    plan = made.plan(module, SHARDERS).plan[""]
    assert {name: plan[name] for name in given.plan[""]} == given.plan[""]
    assert set(plan) == {"t0", "t1", "t2", "t3"}
    assert solved(made).plan.table("t2").ranks == tuple(whole["t2"].ranks)


def made_for(world_size: int = 4, **rows: int) -> ShardingPlan:
    """Return TorchRec's plan of tables split by rows."""
    by_rows = {name: ParameterConstraints(sharding_types=["row_wise"]) for name in rows}
    theirs = EmbeddingShardingPlanner(
        topology=gpus(world_size),
        constraints=by_rows,
        storage_reservation=FixedPercentageStorageReservation(0.1),
        stats=[],
    )
    plan: ShardingPlan = theirs.plan(
        bags(*[table(name, rows=number) for name, number in rows.items()]), SHARDERS
    )
    return plan


@pytest.mark.parametrize("others", [(), ("b",)])
@pytest.mark.parametrize(
    ("rows", "world_size", "problem"),
    [
        (4000, 4, "a shard on rank 1 reaches outside of 1000 x 64"),
        (400, 4, "the shards hold 25600 of 64000 elements"),
        (1000, 8, "rank 4, 5, 6, 7 is out of range, there are 4"),
        (1000, 2, "its shards do not have the shape of row_wise"),
    ],
)
def test_a_plan_of_another_table_or_of_other_ranks_is_refused(
    rows: int, world_size: int, problem: str, others: tuple[str, ...]
) -> None:
    given = made_for(world_size, a=rows)
    module = bags(table("a"), *[table(name) for name in others])
    with pytest.raises(PlannerError, match=f"gives: table `a`: {problem}") as raised:
        planner(fixed_plan=given).plan(module, SHARDERS)
    assert raised.value.error_type is INPUT_VALIDATION


def test_a_plan_that_lacks_a_tables_shards_is_refused() -> None:
    given = made_for(a=1000)
    given.plan[""]["a"].sharding_spec = None
    with pytest.raises(PlannerError, match="table `a`: it has no shards"):
        planner(fixed_plan=given).plan(bags(table("a")), SHARDERS)


def test_a_whole_plan_that_does_not_fit_is_refused() -> None:
    given = made_for(a=10_000_000)  # 2.4 GiB, a quarter of it on each rank
    made = IterationTimePlanner(gpus(4, hbm_cap=2**29), 64, fixed_plan=given)
    with pytest.raises(
        PlannerError, match=r"the plan does not fit: rank 0 needs 0\.6 GiB"
    ) as raised:
        made.plan(bags(table("a", rows=10_000_000)), SHARDERS)
    assert raised.value.error_type.name == "INSUFFICIENT_STORAGE"


def test_a_plan_of_a_table_that_is_not_there_is_said(caplog: pytest.LogCaptureFixture) -> None:
    planner(fixed_plan=made_for(a=1000, z=1000)).plan(bags(table("a")), SHARDERS)
    assert "IterationTimePlanner.fixed_plan (.z): the sharders shard no such table" in caplog.text


@pytest.mark.parametrize("kinds", [{}, {"kv": KEY_VALUE}])
def test_a_key_value_table_that_has_a_plan_keeps_it(kinds: dict[str, ParameterConstraints]) -> None:
    module = bags(table("kv", rows=100_000), table("a"))
    whole = planner(constraints={"kv": KEY_VALUE}).plan(module, SHARDERS).plan[""]
    made = planner(fixed_plan=ShardingPlan({"": {"kv": whole["kv"]}}), constraints=kinds)
    assert made.plan(module, SHARDERS).plan[""]["kv"] == whole["kv"]
    assert solved(made).other_time > 0


def test_constraints_by_path_come_before_those_by_name() -> None:
    model = torch.nn.ModuleDict({"one": bags(table("a")), "two": bags(table("a"))})
    made = planner(
        constraints={
            "a": ParameterConstraints(sharding_types=["table_wise"]),
            "two.a": ParameterConstraints(sharding_types=["row_wise"], stochastic_rounding=True),
        }
    )
    plan = made.plan(model, SHARDERS).plan
    assert plan["one"]["a"].sharding_type == "table_wise"
    assert plan["two"]["a"].sharding_type == "row_wise"
    assert [plan[path]["a"].stochastic_rounding for path in ("one", "two")] == [None, True]


def test_constraints_by_path_are_told_to_torchrecs_parts() -> None:
    given = {
        "pooling_factors": [7.0],
        "sharding_types": ["table_wise"],
        "enforce_hbm": True,
        "stochastic_rounding": False,
        "output_dtype": DataType.BF16,
    }
    told = []

    class Noting(FixedPercentageStorageReservation):
        def reserve(self, **asked: object) -> object:
            told.append(asked["constraints"]["a"].pooling_factors)
            return super().reserve(**asked)

    for key in ("a", "one.a"):
        made = planner(
            constraints={key: ParameterConstraints(**given)},
            callbacks=[lambda options: options],
            storage_reservation=Noting(0.1),
        )
        plan = made.plan(torch.nn.ModuleDict({"one": bags(table("a"))}), SHARDERS).plan["one"]["a"]
        (option,) = made.get_selected_options()
        assert option.input_lengths == [7.0]
        for each in (plan, option):
            assert (each.enforce_hbm, each.stochastic_rounding) == (True, False)
            assert each.output_dtype is DataType.BF16
    assert told == [[7.0]] * 2


def test_constraints_of_one_name_that_torchrec_cannot_tell_apart_are_not_mixed_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = torch.nn.ModuleDict({"one": bags(table("a")), "two": bags(table("a"))})
    kinds = {
        "one.a": ParameterConstraints(sharding_types=["table_row_wise"], stochastic_rounding=True),
        "two.a": ParameterConstraints(sharding_types=["table_wise"], pooling_factors=[7.0]),
    }
    made = planner(constraints=kinds, callbacks=[lambda options: options])
    plan = made.plan(model, SHARDERS).plan
    assert [plan[path]["a"].sharding_type for path in ("one", "two")] == [
        "table_row_wise",
        "table_wise",
    ]
    assert [plan[path]["a"].stochastic_rounding for path in ("one", "two")] == [True, None]
    assert (
        "tables of several modules named `a`: TorchRec's own estimates are without" in caplog.text
    )


@pytest.mark.parametrize("paths", ["xy", "yx"])
def test_key_value_tables_of_one_name_have_their_modules_constraints(paths: str) -> None:
    kinds = {"x": "row_wise", "y": "table_wise"}
    constraints = {
        f"{path}.a": ParameterConstraints(
            compute_kernels=["key_value"],
            sharding_types=[kinds[path]],
            key_value_params=KeyValueParams(ssd_storage_directory=f"/ssd/{path}"),
        )
        for path in paths
    }
    model = torch.nn.ModuleDict({path: bags(table("a")) for path in "xy"})
    plan = planner(constraints=constraints).plan(model, SHARDERS).plan
    for path, kind in kinds.items():
        assert plan[path]["a"].sharding_type == kind
        assert plan[path]["a"].key_value_params.ssd_storage_directory == f"/ssd/{path}"


def test_a_callback_changes_the_plan_and_its_time() -> None:
    def move(options: list[ShardingOption]) -> list[ShardingOption]:
        for option in options:
            for shard in option.shards:
                shard.rank = 3
        return options

    kinds = {"a": ParameterConstraints(sharding_types=["table_wise"])}
    made = planner(callbacks=[move], constraints=kinds)
    assert made.plan(bags(table("a")), SHARDERS).plan[""]["a"].ranks == [3]
    assert solved(made).plan.table("a").ranks == (3,)
    assert [option.shards[0].rank for option in made.get_selected_options()] == [3]


@pytest.mark.parametrize("rank", [4, -1, None])
def test_a_callback_that_leaves_the_ranks_is_refused(rank: int | None) -> None:
    def move(options: list[ShardingOption]) -> list[ShardingOption]:
        options[0].shards[0].rank = rank
        return options

    made = planner(callbacks=[move])
    with pytest.raises(
        PlannerError, match=rf"table `\.a` has a shard on rank {rank}, there"
    ) as raised:
        made.plan(bags(table("a")), SHARDERS)
    assert raised.value.error_type is INVALID_RANK_ASSIGNMENT


def test_a_callback_that_returns_nothing_is_refused() -> None:
    def look(options: list[ShardingOption]) -> None:
        assert options

    with pytest.raises(PlannerError, match="callback `look` returned a NoneType") as raised:
        planner(callbacks=[look]).plan(bags(table("a")), SHARDERS)
    assert raised.value.error_type is INPUT_VALIDATION


def test_a_key_value_table_whose_plan_is_for_more_ranks_is_refused() -> None:
    module = bags(table("kv", rows=100_000), table("a"))
    wide = IterationTimePlanner(gpus(8), 64, constraints={"kv": KEY_VALUE}, sharder="cost_greedy")
    given = ShardingPlan({"": {"kv": wide.plan(module, SHARDERS).plan[""]["kv"]}})
    with pytest.raises(PlannerError, match=r"table `\.kv` has a shard on rank 4"):
        planner(fixed_plan=given).plan(module, SHARDERS)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [(200_000, "reaches outside of 100000 x 64"), (50_000, "the shards hold 3200000 of 6400000")],
)
def test_a_key_value_table_whose_plan_is_for_other_rows_is_refused(rows: int, problem: str) -> None:
    made = planner(constraints={"kv": KEY_VALUE}).plan(bags(table("kv", rows=rows)), SHARDERS)
    module = bags(table("kv", rows=100_000), table("a"))
    with pytest.raises(PlannerError, match=rf"table `\.kv`: .*{problem}") as raised:
        planner(fixed_plan=made).plan(module, SHARDERS)
    assert raised.value.error_type is INPUT_VALIDATION


def test_a_callback_that_leaves_a_part_of_a_table_out_is_refused() -> None:
    def halve(options: list[ShardingOption]) -> list[ShardingOption]:
        for shard in options[0].shards:
            shard.size = [shard.size[0] // 2, shard.size[1]]
        return options

    whole = {"a": ParameterConstraints(sharding_types=["table_wise"])}
    with pytest.raises(PlannerError, match=r"table `\.a`: the shards hold 32000 of 64000"):
        planner(callbacks=[halve], constraints=whole).plan(bags(table("a")), SHARDERS)


def test_options_of_other_tables_are_rated_by_torchrec() -> None:
    module = bags(table("kv", rows=100_000), table("a"))
    topology, kinds = gpus(4), {"kv": KEY_VALUE}
    ratings: list[tuple[float, float]] = []

    class Noting(IterationTimePerfModel):
        def rate(self, plan: list[ShardingOption]) -> float:
            alone = [option for option in plan if option.name == "a"]
            ratings.append((super().rate(plan), super().rate(alone)))
            return ratings[-1][0]

    theirs = EmbeddingShardingPlanner(
        topology=topology,
        batch_size=64,
        constraints=kinds,
        storage_reservation=FixedPercentageStorageReservation(0.1),
        performance_model=Noting(topology, constraints=kinds, hardware="h100-sxm"),
        stats=[],
    )
    theirs.plan(module, SHARDERS)
    assert ratings
    assert all(both > alone > 0 for both, alone in ratings)
