"""Plans as TorchRec's options, where its enumerator refuses to make any."""

import logging

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import PlannerError, ShardingOption
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingPlan
from torchrec_cases import bags, gpus, managed_collision, planner, table

from planner.torchrec import IterationTimePlanner


@pytest.fixture(autouse=True)
def _refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have uneven buckets refused, as torchrec 1.9.2 does, by versions that do not, too."""
    enumerate_options = EmbeddingEnumerator.enumerate

    def refusing(
        self: EmbeddingEnumerator, module: torch.nn.Module, sharders: list[object]
    ) -> list[ShardingOption]:
        options: list[ShardingOption] = enumerate_options(self, module, sharders)
        if any("ManagedCollision" in type(each.module[1]).__name__ for each in options):
            raise ValueError("uneven buckets")
        return options

    monkeypatch.setattr(EmbeddingEnumerator, "enumerate", refusing)


def model() -> torch.nn.Module:
    return torch.nn.ModuleDict({"hashed": managed_collision(), "plain": bags(table("b"))})


def made(**settings: object) -> tuple[IterationTimePlanner, ShardingPlan]:
    ours = planner(**settings)
    return ours, ours.plan(model(), get_default_sharders())


def test_a_plan_is_reported_whose_tables_torchrec_does_not_enumerate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, plan = made()
    assert plan.plan["hashed"]["a"].sharding_type == "row_wise"
    with caplog.at_level(logging.INFO):
        _, reported = made(stats=EmbeddingStats())
    assert str(reported) == str(plan)
    assert any("hashed.a" in r.getMessage() for r in caplog.records if "stats" in r.name)


def test_its_options_have_the_plans_shards_and_estimates() -> None:
    ours, plan = made()
    chosen = {each.fqn: each for each in ours.get_selected_options()}
    assert set(chosen) == {"hashed.a", "plain.b"}
    option = chosen["hashed.a"]
    assert (option.sharding_type, option.partition_by) == ("row_wise", "uniform")
    assert [shard.rank for shard in option.shards] == plan.plan["hashed"]["a"].ranks
    # a quarter of 1000 rows of 64 numbers, at least
    assert all(shard.storage.hbm >= 250 * 64 * 4 for shard in option.shards)
    assert all(shard.perf.total > 0 for shard in option.shards)


def test_callbacks_are_called_with_them() -> None:
    seen: list[list[str]] = []

    def callback(options: list[ShardingOption]) -> list[ShardingOption]:
        seen.append([each.fqn for each in options])
        return options

    _, plan = made(callbacks=[callback])
    assert [sorted(each) for each in seen] == [["hashed.a", "plain.b"]]
    assert plan.plan["hashed"]["a"].sharding_type == "row_wise"


def test_a_callback_that_leaves_a_table_out_is_named() -> None:
    def first(options: list[ShardingOption]) -> list[ShardingOption]:
        del options[1:]
        return options

    with pytest.raises(PlannerError, match=r"callback `first` returned no option of table `plain"):
        made(callbacks=[first])


def test_a_stored_plan_that_cannot_be_compared_is_planned_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Loader:
        """A plan loader that must not be asked."""

        def load(self) -> None:
            pytest.fail("asked for its plan")

        plan_context_hash = load

    _, plan = made(plan_loader=Loader())
    assert set(plan.plan) == {"hashed", "plain"}
    assert "planning anew, as the stored plan cannot be checked: " in caplog.text


def test_options_fit_a_topology_of_one_rank() -> None:
    ours = IterationTimePlanner(gpus(1), 64, hardware="h100-sxm", timeout_seconds=0.1)
    ours.plan(model(), get_default_sharders())
    ranks = {each.fqn: [s.rank for s in each.shards] for each in ours.get_selected_options()}
    assert ranks == {"hashed.a": [0], "plain.b": [0]}
