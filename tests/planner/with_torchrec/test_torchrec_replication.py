"""Which tables are replicated: none that is frozen, others only where that is surely faster."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from table_options import table_options
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec_cases import SHARDERS, bags, gpus, of_types, solved, table

from costmodel.base.errors import InfeasibleError
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.workload import DenseModel, EmbeddingTable, Optimizer, Workload
from costmodel.engine.objective import Objective
from planner.files.profiles import load_profile
from planner.search.search import Attempt, Search
from planner.torchrec import IterationTimePlanner, read_factory
from planner.torchrec.replication import (
    as_judged,
    planned_with_care,
    unreplicated,
    without_replicas,
)
from sharders.problem.options import make_plan, make_sharding
from sharders.problem.sharding_problem import SearchStatus

LAYER = DenseModel(top_mlp=(1,), bottom_mlp=(), num_dense_features=1)
"""Trained by SGD."""
Model = Callable[[], tuple[torch.nn.Module, Any]]


def planned(model: torch.nn.Module, sharder: object = None, **settings: Any) -> list[str]:  # noqa: ANN401
    made = IterationTimePlanner(
        gpus(8), 8192, hardware="h100-sxm", **{"timeout_seconds": 1.0, **settings}
    )
    made.plan(model, SHARDERS if sharder is None else [sharder])
    return [each.sharding_type.value for each in solved(made).plan.tables]


def small() -> torch.nn.Module:
    return bags(table("a", rows=100), table("b", rows=100))


def no_gradients() -> tuple[torch.nn.Module, Any]:
    return small().requires_grad_(requires_grad=False), EmbeddingBagCollectionSharder()


def rate_of_zero() -> tuple[torch.nn.Module, Any]:
    model = small()
    apply_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.0})
    return model, EmbeddingBagCollectionSharder()


def fused_rate_of_zero() -> tuple[torch.nn.Module, Any]:
    fused = {"optimizer": EmbOptimType.ADAM, "learning_rate": 0.0}
    return small(), EmbeddingBagCollectionSharder(fused_params=fused)


FROZEN = (no_gradients, rate_of_zero, fused_rate_of_zero)


@pytest.mark.parametrize("replicate", [None, True])
@pytest.mark.parametrize("make", FROZEN)
def test_frozen_tables_are_not_replicated(make: Model, *, replicate: bool | None) -> None:
    assert "data_parallel" not in planned(*make(), replicate=replicate)


def test_a_rate_set_in_the_backward_counts_before_that_of_fused_parameters() -> None:
    model, sharder = fused_rate_of_zero()
    apply_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    assert planned(model, sharder) == ["data_parallel"] * 2


@pytest.mark.parametrize(("make", "trained"), [(no_gradients, True), (rate_of_zero, False)])
def test_tables_that_torchrec_trains_though_frozen_are_named(
    make: Model,
    trained: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, sharder = make()
    planned(model, sharder, timeout_seconds=0.5)
    said = "\n".join(
        each.getMessage() for each in caplog.records if each.name.startswith("planner.")
    )
    assert ("requires_grad=False (a, b): TorchRec trains it all the same" in said) is trained


def test_a_frozen_table_is_sharded_if_it_may_be(caplog: pytest.LogCaptureFixture) -> None:
    model, _ = rate_of_zero()
    types = {
        "a": ParameterConstraints(sharding_types=["data_parallel", "row_wise"]),
        "b": ParameterConstraints(sharding_types=["data_parallel"]),
    }
    assert planned(model, constraints=types) == ["row_wise", "data_parallel"]
    (said,) = (r.getMessage() for r in caplog.records if "replicates" in r.getMessage())
    assert said.startswith("the plan replicates 1 table (.b) (data_parallel), frozen as they are")
    assert "dense optimizer must not have their parameters" in said
    assert "does not update" not in caplog.text


def frozen_model() -> torch.nn.Module:
    """Return a model that the command line plans for."""
    model, _ = rate_of_zero()
    return model


def test_frozen_tables_are_read_off_a_function_too() -> None:
    workload, _ = read_factory("test_torchrec_replication:frozen_model")
    assert all(ShardingType.DATA_PARALLEL not in each.sharding_types for each in workload.tables)
    assert all(each.sharding_types for each in workload.tables)


def four(rows: int) -> torch.nn.Module:
    return bags(*(table(f"t{i}", rows=rows) for i in range(4)))


def test_tables_are_replicated_where_that_is_surely_faster() -> None:
    # without exchanges the host does half as much: 1.8 ms, not 3.7
    assert planned(four(1000)) == planned(four(1000), replicate=True) == ["data_parallel"] * 4
    # here it is 2.7 ms, with a probability of 0.88 to be the faster one
    assert planned(four(400_000), replicate=True, dense=LAYER) == ["data_parallel"] * 4
    assert "data_parallel" not in planned(four(400_000), dense=LAYER)


def test_a_dense_optimizer_that_is_not_told_is_taken_to_be_slow() -> None:
    assert planned(four(200_000), dense=LAYER) == ["data_parallel"] * 4
    assert "data_parallel" not in planned(four(200_000))


@pytest.mark.parametrize("replicate", [False, None, True])
def test_nothing_is_replicated_against_the_scripts_will(
    *, replicate: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = planned(small(), replicate=replicate)
    assert ("data_parallel" in kinds) is (replicate is not False)
    said = "the optimizer in the backward does not update 2 tables (.a, .b) of the plan"
    # whatever optimizer the model had when it was planned: it may get one later
    assert (said in caplog.text) is (replicate is not False)


def test_what_may_be_nothing_else_is_replicated() -> None:
    kinds = planned(small(), replicate=False, constraints=of_types(a="data_parallel"))
    assert kinds[0] == "data_parallel" != kinds[1]


def test_a_list_without_another_choice_stays() -> None:
    only = EmbeddingTable(
        name="a",
        num_embeddings=8,
        embedding_dim=4,
        sharding_types=(ShardingType.DATA_PARALLEL,),
        compute_kernels=(ComputeKernel.DENSE,),
    )
    assert unreplicated(only) == only
    kinds = (ShardingType.DATA_PARALLEL, ShardingType.ROW_WISE)
    both = replace(only, sharding_types=kinds, compute_kernels=tuple(ComputeKernel))
    assert unreplicated(both).sharding_types == kinds[1:]
    assert ComputeKernel.DENSE not in unreplicated(both).compute_kernels


def test_tables_that_could_then_not_be_sharded_stay() -> None:
    kinds = (ShardingType.DATA_PARALLEL, ShardingType.ROW_WISE)
    few = EmbeddingTable(name="a", num_embeddings=3, embedding_dim=4, sharding_types=kinds)
    many = replace(few, name="b", num_embeddings=300)
    workload = Workload(name="w", tables=(few, many), dense=DenseModel(), local_batch_size=8)
    topology = Topology(hardware=load_profile("cpu-gloo"), world_size=4, local_world_size=4)
    # FBGEMM's lookups on CPU take no shards without rows
    apart = without_replicas(workload, topology)
    assert apart.table("a") == few
    assert apart.table("b").sharding_types == kinds[1:]
    assert without_replicas(workload, topology, {"a"}) == workload


TOPOLOGY = Topology(hardware=load_profile("h100-sxm"), world_size=4, local_world_size=4)


def of_rows(rows: int) -> Workload:
    only = EmbeddingTable(
        name="a",
        num_embeddings=rows,
        embedding_dim=64,
        sharding_types=(ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE),
        compute_kernels=(ComputeKernel.DENSE, ComputeKernel.FUSED),
    )
    return Workload(name="w", tables=(only,), dense=LAYER, local_batch_size=1024)


SMALL, LARGE = of_rows(1000), of_rows(3_000_000)


def attempt(
    kind: ShardingType, workload: Workload = SMALL, status: SearchStatus = SearchStatus.CONVERGED
) -> Attempt:
    (a,) = workload.tables
    option = next(o for o in table_options(workload, TOPOLOGY, a) if o.sharding_type is kind)
    plan = make_plan(TOPOLOGY, [make_sharding(a, TOPOLOGY, option, (0,) * option.num_ranks)])
    seconds = Objective(workload, TOPOLOGY).step_time(plan)
    return Attempt(sharder="s", plan=plan, step_time=seconds, status=status)


REPLICATED, SHARDED = ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE


class Finding:
    """Returns prepared attempts, and keeps what it was asked for."""

    def __init__(self, *attempts: Attempt | InfeasibleError) -> None:
        self.attempts = list(attempts)
        self.asked: list[tuple[Workload, float, int]] = []

    def __call__(
        self, workload: Workload, search: Search, known: tuple[ShardingPlan, ...]
    ) -> Attempt:
        self.asked.append((workload, search.time_limit, len(known)))
        found = self.attempts.pop(0)
        if isinstance(found, InfeasibleError):
            raise found
        return found


def with_care(find: Finding, workload: Workload = SMALL, judged: Workload | None = None) -> Attempt:
    ticks = iter((0.0, 3.0))  # the first search took 3 s
    search = Search(time_limit=10.0, clock=lambda: next(ticks))
    return planned_with_care(find, workload, TOPOLOGY, search, judged or workload)


def test_an_untold_optimizer_is_adam() -> None:
    assert as_judged(SMALL, told=True) == SMALL
    assert as_judged(SMALL, told=False).dense.optimizer is Optimizer.ADAM


def test_both_searches_share_the_time_there_is() -> None:
    find = Finding(attempt(REPLICATED), attempt(SHARDED))
    assert with_care(find) == attempt(REPLICATED)
    assert find.asked == [(SMALL, 5.0, 0), (without_replicas(SMALL, TOPOLOGY), 7.0, 0)]


def test_the_step_is_that_of_the_workload_whatever_is_judged() -> None:
    judged = as_judged(SMALL, told=False)
    find = Finding(attempt(REPLICATED, judged), attempt(SHARDED))
    assert attempt(REPLICATED, judged).step_time > attempt(REPLICATED).step_time
    assert with_care(find, judged=judged) == attempt(REPLICATED)
    assert find.asked[0][0] == judged


def test_slower_replicas_are_not_kept() -> None:
    # 768 MB of gradients are reduced in each step
    find = Finding(attempt(REPLICATED, LARGE), attempt(SHARDED, LARGE))
    assert with_care(find, LARGE) == attempt(SHARDED, LARGE)


def test_one_search_is_enough_where_it_replicates_nothing_and_ended() -> None:
    find = Finding(attempt(SHARDED))
    assert with_care(find) == attempt(SHARDED)
    assert len(find.asked) == 1


def test_a_search_that_was_cut_goes_on_from_its_plan() -> None:
    cut = attempt(SHARDED, status=SearchStatus.LIMIT)
    better = replace(cut, step_time=0.9 * cut.step_time)
    find = Finding(cut, better)
    assert with_care(find) == better
    assert [known for _, _, known in find.asked] == [0, 1]
    assert with_care(Finding(cut, replace(cut, step_time=inf))) == cut


def test_what_fits_only_replicated_is_kept() -> None:
    find = Finding(attempt(REPLICATED), InfeasibleError("too large"))
    assert with_care(find) == attempt(REPLICATED)


def test_what_does_not_fit_as_judged_may_fit_sharded() -> None:
    find = Finding(InfeasibleError("too large"), attempt(SHARDED))
    assert with_care(find) == attempt(SHARDED)
    assert find.asked[1] == (without_replicas(SMALL, TOPOLOGY), 7.0, 0)


def test_all_the_time_is_for_one_search_where_there_is_no_choice() -> None:
    apart = without_replicas(SMALL, TOPOLOGY)
    find = Finding(attempt(SHARDED))
    assert with_care(find, apart) == attempt(SHARDED)
    assert find.asked == [(apart, 10.0, 0)]
