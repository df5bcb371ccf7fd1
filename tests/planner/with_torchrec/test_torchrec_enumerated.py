"""What an enumerator lists is what may be chosen."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlannerError,
    PlannerErrorType,
    ShardingOption,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import CacheParams
from torchrec_cases import SHARDERS, bags, gpus, managed_collision, of_types, solved, table

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import Pipeline
from planner.torchrec import IterationTimePlanner

RANKS, BATCH = 4, 64
Keep = Callable[[ShardingOption], bool]


class Some(EmbeddingEnumerator):  # type: ignore[misc]  # torchrec has no types here
    """Lists some of TorchRec's options, and may change them."""

    def __init__(self, keep: Keep, **constraints: ParameterConstraints) -> None:
        super().__init__(gpus(RANKS), BATCH, constraints=constraints)
        self.keep = keep

    def enumerate(self, module: torch.nn.Module, sharders: list[Any]) -> list[ShardingOption]:
        return [each for each in super().enumerate(module, sharders) if self.keep(each)]


def listing(**constraints: ParameterConstraints) -> EmbeddingEnumerator:
    return EmbeddingEnumerator(gpus(RANKS), BATCH, constraints=constraints)


def planned(enumerator: object, model: torch.nn.Module, **settings: object) -> IterationTimePlanner:
    made = IterationTimePlanner(
        gpus(RANKS),
        BATCH,
        enumerator=enumerator,
        hardware="h100-sxm",
        **{"timeout_seconds": 0.2, **settings},
    )
    made.plan(model, SHARDERS)
    return made


def kinds(made: IterationTimePlanner) -> dict[str, str]:
    return {each.table: each.sharding_type.value for each in solved(made).plan.tables}


def two_tables() -> torch.nn.Module:
    return bags(table("a"), table("b"))


@pytest.mark.parametrize(
    "enumerator",
    [
        listing(**of_types(a="row_wise", b="row_wise")),
        Some(lambda option: option.sharding_type == "row_wise"),
    ],
)
def test_types_that_are_not_listed_are_not_chosen(
    enumerator: EmbeddingEnumerator, caplog: pytest.LogCaptureFixture
) -> None:
    assert kinds(planned(None, two_tables())) != {"a": "row_wise", "b": "row_wise"}
    caplog.clear()
    assert kinds(planned(enumerator, two_tables())) == {"a": "row_wise", "b": "row_wise"}
    assert "enumerate" not in caplog.text


def test_each_table_has_its_own_list_by_its_modules_path() -> None:
    model = torch.nn.ModuleDict({"one": bags(table("a")), "two": bags(table("a"))})
    wanted = {"one": "row_wise", "two": "column_wise"}
    enumerator = Some(lambda option: option.sharding_type == wanted[option.path])
    assert kinds(planned(enumerator, model)) == {"one.a": "row_wise", "two.a": "column_wise"}


def test_kernels_are_those_listed_for_the_type() -> None:
    pairs = {("row_wise", "fused_uvm"), ("table_wise", "fused_uvm"), ("column_wise", "fused")}
    enumerator = Some(lambda option: (option.sharding_type, option.compute_kernel) in pairs)
    made = planned(enumerator, bags(table("a")))
    read = solved(made).workload.table("a")
    assert set(read.compute_kernels) == {ComputeKernel.FUSED_UVM}
    # column shards have another kernel: those are named, and not planned
    assert set(read.sharding_types) == {ShardingType.ROW_WISE, ShardingType.TABLE_WISE}


def test_column_shards_are_as_wide_as_those_listed() -> None:
    def widths(enumerator: object) -> set[int]:
        made = planned(enumerator, bags(table("a", dim=256)))
        return {shard.num_columns for shard in solved(made).plan.table("a").shards}

    columns = ParameterConstraints(sharding_types=["column_wise"], min_partition=64)
    # of 256 columns, four of 64 or two of 128; TorchRec's own narrowest are 128
    assert widths(listing(a=columns)) <= {64, 128}
    by_columns: Keep = lambda option: option.sharding_type == "column_wise"  # noqa: E731
    assert widths(Some(by_columns)) == {128}
    assert planned(Some(by_columns), bags(table("a", dim=256))).solution is not None
    assert (
        solved(planned(listing(a=columns), bags(table("a", dim=256))))
        .workload.table("a")
        .min_shard_dim
        == 64
    )


def test_what_its_options_say_of_a_table_goes_into_the_plan() -> None:
    cached = ParameterConstraints(
        compute_kernels=["fused_uvm_caching"],
        cache_params=CacheParams(load_factor=0.3),
        enforce_hbm=True,
        pooling_factors=[7.0],
    )
    made = planned(listing(a=cached), two_tables())
    sharding = solved(made).torchrec_plan.plan[""]["a"]
    assert sharding.cache_params.load_factor == 0.3
    assert sharding.enforce_hbm
    assert solved(made).workload.table("a").pooling_factor == 7
    assert solved(made).workload.table("b").pooling_factor == 1
    assert solved(made).workload.pipeline is Pipeline.SPARSE_DIST
    cached.cache_params.prefetch_pipeline = True
    prefetching = planned(listing(a=cached), two_tables())
    assert solved(prefetching).workload.pipeline is Pipeline.PREFETCH


def test_constraints_narrow_what_is_listed() -> None:
    def rows_or_whole(option: ShardingOption) -> bool:
        return option.sharding_type in {"row_wise", "table_wise"}

    whole = of_types(a="table_wise")
    assert kinds(planned(Some(rows_or_whole), two_tables(), constraints=whole))["a"] == "table_wise"
    columns = of_types(a="column_wise")
    said = r"table `a` cannot be sharded: .*column_wise.*; on cuda the enumerator offers"
    with pytest.raises(PlannerError, match=said) as raised:
        planned(Some(rows_or_whole), two_tables(), constraints=columns)
    assert raised.value.error_type is PlannerErrorType.STRICT_CONSTRAINTS


def test_an_enumerator_that_lists_nothing_for_a_table_is_refused() -> None:
    only_a = Some(lambda option: option.name == "a")
    with pytest.raises(
        PlannerError, match=r"the enumerator, Some, lists no sharding option for table `\.b`"
    ):
        planned(only_a, two_tables())


def test_tables_that_have_a_plan_need_no_option() -> None:
    given = solved(planned(None, two_tables())).torchrec_plan
    del given.plan[""]["a"]
    only_a = Some(lambda option: option.name == "a" and option.sharding_type == "row_wise")
    made = planned(only_a, two_tables(), fixed_plan=given)
    assert kinds(made)["a"] == "row_wise"
    assert solved(made).torchrec_plan.plan[""]["b"] == given.plan[""]["b"]


def test_tables_of_another_device_need_no_option() -> None:
    made = planned(listing(a=ParameterConstraints(device_group="cpu")), two_tables())
    assert set(solved(made).torchrec_plan.plan[""]) == {"b"}


def test_an_enumerator_that_fails_is_named() -> None:
    def failing(option: ShardingOption) -> bool:
        raise KeyError(option.name)

    with pytest.raises(PlannerError, match=r"the enumerator, Some, fails for this .*KeyError: 'a'"):
        planned(Some(failing), bags(table("a")))


def test_what_torchrecs_enumerator_refuses_is_refused_before_the_search() -> None:
    # one bucket of ids, which it does not split over several ranks; others plan the table
    made = IterationTimePlanner(gpus(RANKS), BATCH, enumerator=listing(), hardware="h100-sxm")
    with pytest.raises(PlannerError, match=r"EmbeddingEnumerator, fails .*uneven buckets"):
        made.plan(managed_collision(), get_default_sharders())


def tilted(options: Sequence[ShardingOption]) -> list[ShardingOption]:
    """Return options of which rows are split unevenly."""
    for option in options:
        if option.sharding_type == "row_wise":
            option.shards[0].size = [option.shards[0].size[0] + 1, option.shards[0].size[1]]
    return list(options)


def dependent(options: Sequence[ShardingOption]) -> list[ShardingOption]:
    """Return options that belong together."""
    for option in options:
        option.dependency = "tower"
    return list(options)


def placed(options: Sequence[ShardingOption]) -> list[ShardingOption]:
    """Return options whose shards have ranks."""
    for option in options:
        option.shards[0].rank = 1
    return list(options)


class Changed(EmbeddingEnumerator):  # type: ignore[misc]
    """Lists TorchRec's options, changed."""

    def __init__(self, change: Callable[..., list[ShardingOption]], batch: int = BATCH) -> None:
        super().__init__(gpus(RANKS), batch)
        self.change = change

    def enumerate(self, module: torch.nn.Module, sharders: list[Any]) -> list[ShardingOption]:
        return self.change(super().enumerate(module, sharders))


@pytest.mark.parametrize(
    ("enumerator", "said"),
    [
        (Changed(tilted), "rows are split evenly"),
        (Changed(dependent), "tables that it makes depend on each other may be placed apart"),
        (Changed(placed), "ranks that it gives shards are not kept"),
        (Changed(list, batch=32), "its batch size: 64, the planner's, is planned for"),
    ],
)
def test_what_is_listed_and_cannot_be_heeded_is_named(
    enumerator: EmbeddingEnumerator, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    planned(enumerator, two_tables())
    assert f"Changed.enumerate (a, b): {said}" in caplog.text
    assert caplog.text.count(".enumerate") == 1


def test_a_constraint_of_no_table_is_named(caplog: pytest.LogCaptureFixture) -> None:
    planned(listing(**of_types(a="row_wise", nosuch="row_wise")), two_tables())
    assert "EmbeddingEnumerator.constraints (nosuch): the model has no such table" in caplog.text


def test_wider_column_shards_than_those_listed_are_named(caplog: pytest.LogCaptureFixture) -> None:
    planned(listing(), bags(table("a", dim=512), table("b")))
    # 128 is listed of 512 columns, and 256 may be chosen; b's 64 are not split
    assert "EmbeddingEnumerator.enumerate (a): column shards wider than those it" in caplog.text


def test_torchrec_enumerates_nothing_unless_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def enumerate_options(*given: object, **named: object) -> None:
        raise AssertionError(given, named)

    monkeypatch.setattr(EmbeddingEnumerator, "enumerate", enumerate_options)
    assert planned(None, two_tables()).solution is not None


def test_a_subclass_of_the_constraints_keeps_its_fields() -> None:
    @dataclasses.dataclass
    class Own(ParameterConstraints):  # type: ignore[misc]
        owner: str = ""

        __hash__ = ParameterConstraints.__hash__

    made = planned(listing(a=Own(owner="me", sharding_types=["row_wise"])), bags(table("a")))
    assert kinds(made) == {"a": "row_wise"}
