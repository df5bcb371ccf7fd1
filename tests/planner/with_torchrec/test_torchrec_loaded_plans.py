"""Stored plans, by TorchRec's hash of every option: whole, in part, and of something else."""

import pickle

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, ShardingOption
from torchrec.distributed.types import ShardingPlan
from torchrec_cases import SHARDERS, bags, gpus, solved, table

from planner.torchrec import IterationTimePlanner

KINDS = {
    "t0": ParameterConstraints(sharding_types=["row_wise"]),
    "t1": ParameterConstraints(sharding_types=["column_wise"], min_partition=8),
    "t2": ParameterConstraints(
        sharding_types=["table_wise"], compute_kernels=["fused_uvm_caching"]
    ),
}
Stored = dict[int, ShardingOption]


class Storage:
    """A plan loader that has some options."""

    def __init__(self, options: list[ShardingOption], context: str | None = None) -> None:
        self.options, self.context = options, context

    def plan_context_hash(self) -> str | None:
        return self.context

    def load(self) -> Stored:
        hashed = {option.storage_hash(): option for option in self.options}
        back: Stored = pickle.loads(pickle.dumps(hashed))  # noqa: S301 - our own
        return back


def module() -> torch.nn.Module:
    return bags(*[table(f"t{i}", dim=64) for i in range(4)])


def planner(**settings: object) -> IterationTimePlanner:
    given = {"hardware": "h100-sxm", "sharder": "cost_greedy", "constraints": KINDS, **settings}
    return IterationTimePlanner(gpus(4), 64, **given)


@pytest.fixture(scope="module")
def first() -> tuple[IterationTimePlanner, ShardingPlan, list[ShardingOption]]:
    made = planner()
    plan = made.plan(module(), SHARDERS)
    return made, plan, made.get_selected_options()


First = tuple[IterationTimePlanner, ShardingPlan, list[ShardingOption]]


def test_a_plan_of_ours_comes_back_from_storage_and_is_timed(first: First) -> None:
    made, plan, options = first
    # two blocks of columns are not what TorchRec's enumerator offers, which splits as far as it may
    assert len(plan.plan[""]["t1"].ranks) == 2
    again = planner(plan_loader=Storage(options, made.hash_planner_context_inputs_str()))
    assert again.plan(module(), SHARDERS).plan == plan.plan
    assert solved(again).plan == solved(made).plan
    assert solved(again).step_time == solved(made).step_time
    assert solved(again).sharder == "given"


def test_a_plan_of_torchrecs_comes_back_as_it_was(first: First) -> None:
    chosen: list[ShardingOption] = []

    def keep(options: list[ShardingOption]) -> list[ShardingOption]:
        chosen.extend(options)
        return options

    theirs = EmbeddingShardingPlanner(
        topology=gpus(4),
        batch_size=64,
        constraints=KINDS,
        storage_reservation=FixedPercentageStorageReservation(0.1),
        stats=[],
        callbacks=[keep],
    )
    plan = theirs.plan(module(), SHARDERS)
    ours = planner(
        plan_loader=Storage(chosen, theirs.hash_planner_context_inputs_str()),
        storage_reservation=FixedPercentageStorageReservation(0.1),
    )
    assert ours.plan(module(), SHARDERS).plan == plan.plan
    assert solved(ours).step_time >= solved(first[0]).step_time


def test_the_rest_is_planned_around_a_plan_of_some_tables(first: First) -> None:
    _, plan, options = first
    some = [option for option in options if option.name in {"t1", "t2"}]
    for option in some:
        if option.name == "t2":
            option.shards[0].rank = 3
    again = planner(plan_loader=Storage(some))
    made = again.plan(module(), SHARDERS).plan[""]
    assert set(made) == {"t0", "t1", "t2", "t3"}
    assert made["t1"] == plan.plan[""]["t1"]
    assert made["t2"].ranks == [3]
    assert solved(again).plan.table("t2").ranks == (3,)
    assert solved(again).sharder == "cost_greedy"


def test_an_option_of_no_table_of_the_model_is_refused(first: First) -> None:
    stored = Storage([option for option in first[2] if option.name == "t3"])
    with pytest.raises(PlannerError, match=r"none of this model's tables' options") as raised:
        planner(plan_loader=stored).plan(bags(table("t0")), SHARDERS)
    assert raised.value.error_type.name == "PLAN_LOADING_FAILED"


def test_a_plan_of_another_context_is_refused(first: First) -> None:
    other = planner(plan_loader=Storage(first[2], "of something else"))
    with pytest.raises(PlannerError, match="planner input mismatch"):
        other.plan(module(), SHARDERS)


def test_what_cannot_be_checked_is_planned_anew(
    first: First, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = planner(plan_loader=Storage(first[2]))

    def unstable(_: object) -> str:
        raise RuntimeError("no fingerprint")

    monkeypatch.setattr(IterationTimePlanner, "hash_planner_context_inputs_str", unstable)
    made.plan(module(), SHARDERS)
    assert "planning anew, as the stored plan cannot be checked: no fingerprint" in caplog.text
    assert solved(made).sharder == "cost_greedy"
