import sys
from importlib.metadata import EntryPoint
from random import Random

import pytest

from costmodel.base.errors import MissingDependencyError, PluginError, UnknownNameError
from planner.search import plugins
from planner.search.plugins import load_sharder, sharder_names
from planner.search.running import run_sharders
from planner.search.search import Search
from sharders import SHARDERS
from sharders.problem.sharding_problem import Budget, ShardingProblem


class WithoutShard:
    pass


class Liar:
    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> str:
        del problem, budget, rng
        return "no result"


def offer(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    points = [EntryPoint("mine", value, plugins.GROUP)]

    def found(*, group: str, name: str | None = None) -> list[EntryPoint]:
        return [point for point in points if group == point.group and name in {None, point.name}]

    monkeypatch.setattr(plugins, "entry_points", found)


@pytest.mark.parametrize("name", SHARDERS)
def test_built_in_sharders_can_be_made(name: str) -> None:
    assert callable(load_sharder(name).shard)


def test_an_unknown_sharder_gets_a_suggestion() -> None:
    with pytest.raises(UnknownNameError) as error:
        load_sharder("size_gredy")
    assert error.value.hint == "did you mean `size_greedy`?"


def test_what_stands_for_all_sharders_is_not_offered_where_one_is_needed() -> None:
    with pytest.raises(UnknownNameError) as error:
        load_sharder("auto")
    assert "auto" not in error.value.choices


def test_plugins_are_listed_after_the_built_in_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "sharders.greedy.one_pass:Naive")
    monkeypatch.setattr("planner.search.plugins.torchrec_installed", lambda: False)
    assert sharder_names() == (*SHARDERS, "mine")
    assert callable(load_sharder("mine").shard)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("nowhere_at_all:Mine", "ModuleNotFoundError"),
        ("sharders.greedy.one_pass:Mine", "AttributeError"),
        (f"{__name__}:WithoutShard", "has no method `shard`"),
    ],
)
def test_broken_plugins_say_so(monkeypatch: pytest.MonkeyPatch, value: str, reason: str) -> None:
    offer(monkeypatch, value)
    with pytest.raises(PluginError, match=reason):
        load_sharder("mine")


def test_a_plugin_that_returns_rubbish_is_found_out(
    monkeypatch: pytest.MonkeyPatch, problem: ShardingProblem
) -> None:
    offer(monkeypatch, f"{__name__}:Liar")
    with pytest.raises(PluginError, match="returned a str"):
        run_sharders(("mine",), problem, Search())


def test_torchrec_that_cannot_be_imported_here_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.search.plugins.require_torchrec", lambda _: None)
    monkeypatch.setitem(sys.modules, "planner.torchrec.torchrec_sharder", None)
    with pytest.raises(MissingDependencyError, match="cannot be imported here: ") as raised:
        load_sharder("torchrec")
    assert raised.value.hint is None  # installing it again would not help
