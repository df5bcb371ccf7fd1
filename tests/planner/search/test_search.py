import re
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import planner
from costmodel.base.errors import InfeasibleError, InputError, MissingDependencyError
from planner.examples import example_problem, example_workload
from planner.files.profiles import load_profile
from planner.search import gains as gains_module
from planner.search.gains import (
    FEW_RANKS,
    QUIET_SHARE,
    SMALL_QUIET_PASSES,
    SMALL_QUIET_SHARE,
    WORTH_WAITING,
    Gains,
    is_small,
)
from planner.search.one_sharder import run_sharder
from planner.search.running import run_sharders
from planner.search.search import (
    PATIENCE,
    Attempt,
    Search,
    SearchEnd,
    plan_status,
    search_end,
    several,
    sharders_for,
)
from planner.verbs.comparing import run_apart
from planner.verbs.topologies import make_topology
from sharders import PORTFOLIO, SHARDERS
from sharders.greedy.one_pass import Naive
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    Sharder,
    ShardingProblem,
)


def stand_in(monkeypatch: pytest.MonkeyPatch, sharders: Mapping[str, Sharder]) -> None:
    """Have names stand for these sharders."""
    monkeypatch.setattr("planner.search.one_sharder.load_sharder", sharders.__getitem__)


def test_auto_stands_for_the_portfolio() -> None:
    assert sharders_for("auto") == PORTFOLIO
    assert sharders_for("naive") == ("naive",)


def test_an_interrupt_keeps_what_was_found(problem: ShardingProblem) -> None:
    search = Search(interrupted=lambda: True)
    (attempt,) = run_sharders(tuple(SHARDERS), problem, search)
    assert attempt.plan is not None


def test_time_that_is_up_still_gives_a_plan(problem: ShardingProblem) -> None:
    attempts = run_sharders(("naive", "random"), problem, Search(time_limit=1e-9))
    assert [attempt.sharder for attempt in attempts] == ["naive"]


@dataclass(frozen=True)
class Interrupted:
    """Presses Ctrl-C so often before it has a plan, and returns the plan if it is let to."""

    times: int

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        for _ in range(self.times):
            signal.raise_signal(signal.SIGINT)
        assert budget.should_stop()
        return Naive().shard(problem, Budget(), rng)


@pytest.fixture
def pressing(monkeypatch: pytest.MonkeyPatch) -> None:
    sharders = {"naive": Naive(), "once": Interrupted(1), "twice": Interrupted(2)}
    stand_in(monkeypatch, sharders)


@pytest.mark.usefixtures("pressing")
@pytest.mark.parametrize("run", [run_sharders, run_apart])
def test_ctrl_c_keeps_the_plan_of_the_sharder_that_is_searching(
    problem: ShardingProblem, run: Callable[..., tuple[Attempt, ...]]
) -> None:
    (attempt,) = run(("once", "naive"), problem, Search())
    assert (attempt.sharder, attempt.plan is not None) == ("once", True)
    if run is run_sharders:
        assert search_end(("once", "naive"), (attempt,)) is SearchEnd.INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("pressing")
@pytest.mark.parametrize("run", [run_sharders, run_apart])
def test_a_second_ctrl_c_keeps_the_plans_of_the_sharders_before(
    problem: ShardingProblem, run: Callable[..., tuple[Attempt, ...]]
) -> None:
    (attempt,) = run(("naive", "twice"), problem, Search())
    assert (attempt.sharder, attempt.plan is not None) == ("naive", True)


@pytest.mark.usefixtures("pressing")
@pytest.mark.parametrize("run", [run_sharders, run_apart])
def test_a_second_ctrl_c_before_any_plan_is_an_interrupt(
    problem: ShardingProblem, run: Callable[..., tuple[Attempt, ...]]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(("twice", "naive"), problem, Search())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_annealing_keeps_the_best_plan_so_far() -> None:
    told: list[float] = []

    def press_once(name: str, progress: Progress) -> None:
        del name
        if not told:
            signal.raise_signal(signal.SIGINT)
        told.append(progress.best)

    search = Search(time_limit=60.0, watch=press_once)
    (attempt,) = run_sharders(("annealing",), example_problem(example_workload(6)), search)
    assert attempt.step_time <= told[0]
    assert attempt.time < search.time_limit


def test_an_interrupt_of_the_caller_between_sharders_keeps_what_was_found(
    problem: ShardingProblem,
) -> None:
    asked: list[bool] = []

    def press() -> bool:
        asked.append(True)
        raise KeyboardInterrupt

    (attempt,) = run_sharders(("naive", "random"), problem, Search(interrupted=press))
    assert (attempt.sharder, attempt.plan is not None, asked) == ("naive", True, [True])
    assert attempt.early is SearchEnd.INTERRUPTED


def test_when_nothing_fits_the_first_error_is_raised(problem: ShardingProblem) -> None:
    table = replace(problem.workload.tables[0], num_embeddings=10**11)
    large = ShardingProblem.of(replace(problem.workload, tables=(table,)), problem.topology)
    with pytest.raises(InfeasibleError):
        run_sharders(("naive", "random"), large, Search())


def test_a_sharder_whose_package_is_missing_is_passed_over(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    attempts = run_sharders(("optuna", "naive"), problem, Search())
    assert [attempt.sharder for attempt in attempts if attempt.plan] == ["naive"]
    with pytest.raises(MissingDependencyError):
        run_sharders(("optuna",), problem, Search())


@dataclass(frozen=True)
class Telling:
    """Tells of steps that take so long, one after the other."""

    steps: tuple[float, ...]

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        for step in self.steps:
            budget.report(Progress(evaluated=1, best=step))
        return Naive().shard(problem, Budget(), rng)


def test_the_best_step_told_of_never_rises(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharders = {"naive": Telling((5.0, 4.0)), "annealing": Telling((6.0, 3.0, 3.5))}
    told: list[tuple[str, float]] = []
    stand_in(monkeypatch, sharders)
    watch = Search(watch=lambda name, progress: told.append((name, progress.best)))
    run_sharders(tuple(sharders), problem, watch)
    best = {name: [step for teller, step in told if teller == name] for name in sharders}
    found = problem.objective.step_time(Naive().shard(problem, Budget(), Random(0)).plan)
    assert found < 3.0  # what each of them returns is told of, too
    assert best == {"naive": [5.0, 4.0, found], "annealing": [4.0, 3.0, 3.0, found]}


def test_nothing_is_begun_that_would_end_too_late(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(limit: float, first_plan: float) -> list[str]:
        now, names = [0.0], []

        def watched(name: str, given: ShardingProblem, search: Search, deadline: float) -> Attempt:
            del given
            names.append(name)
            now[0] += first_plan
            search.watch(name, told(1.0))
            assert not search.interrupted()
            now[0] = deadline - 2.0
            return Attempt(sharder=name, plan=object(), time=now[0])  # type: ignore[arg-type]

        monkeypatch.setattr("planner.search.in_turn.run_sharder", watched)
        search = Search(time_limit=limit, clock=lambda: now[0], patience=inf)
        run_sharders(("annealing", "random"), problem, search)
        return names

    assert taken(10.0, first_plan=1.5) == ["annealing", "random"]
    assert taken(10.0, first_plan=2.5) == ["annealing"]


def test_a_search_ends_the_sooner_the_longer_its_first_plan_took() -> None:
    clock = [0.0]
    of = gains(clock, time_limit=10.0, deadline=lambda first_plan: 12.0 - 2 * first_plan)
    assert of.deadline() == 10.0
    clock[0] = 4.0
    of.watch("annealing", told(1.0))
    assert of.deadline() == 4.0
    assert not of.over("annealing")
    clock[0] = 4.1
    assert of.over("annealing")
    assert of.early is None


def test_a_sharder_that_tells_of_nothing_has_its_first_plan_at_its_end() -> None:
    of = gains([0.0])
    of.end(Attempt(sharder="a", plan=None, time=1.0))
    of.end(Attempt(sharder="b", plan=object(), time=2.0))  # type: ignore[arg-type]
    of.end(Attempt(sharder="c", plan=object(), time=3.0))  # type: ignore[arg-type]
    assert of.first_plan == 2.0


def test_later_sharders_know_all_plans_of_earlier_ones(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Naive().shard(problem, Budget(), Random(seed)).plan for seed in (0, 1))
    known: list[tuple[object, ...]] = []

    def watched(name: str, given: ShardingProblem, search: Search, deadline: float) -> Attempt:
        del search, deadline
        known.append(given.known)
        return Attempt(sharder=name, plan=first, step_time=1.0, others=(second,))

    monkeypatch.setattr("planner.search.in_turn.run_sharder", watched)
    run_sharders(("naive", "random"), problem, Search(clock=lambda: 0.0))
    assert known == [(), (first, second)]


def test_sharders_that_are_compared_have_the_same_time_and_know_nothing_of_each_other(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, float, int]] = []

    def watched(name: str, given: ShardingProblem, search: Search, deadline: float) -> Attempt:
        seen.append((name, deadline - search.clock(), len(given.known)))
        return run_sharder(name, given, search, deadline)

    monkeypatch.setattr("planner.search.in_turn.run_sharder", watched)
    names = ("naive", "random", "size_greedy")
    apart = run_apart(names, problem, Search(time_limit=60.0, clock=lambda: 0.0))
    assert [attempt.sharder for attempt in apart] == list(names)
    assert seen == [("naive", 60.0, 0), ("random", 60.0, 0), ("size_greedy", 60.0, 0)]
    (auto,) = run_apart(("auto",), problem, Search(time_limit=1e-9))
    assert auto.sharder == "auto"
    assert auto.plan is not None


def test_a_comparison_says_why_a_sharder_found_nothing(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    missing, naive = run_apart(("optuna", "naive"), problem, Search())
    assert isinstance(missing.error, MissingDependencyError)
    assert naive.plan is not None


def test_an_interrupted_comparison_keeps_what_it_has(problem: ShardingProblem) -> None:
    (attempt,) = run_apart(("naive", "random"), problem, Search(interrupted=lambda: True))
    assert attempt.sharder == "naive"


def test_so_many_plans_and_a_seed_give_the_same_plan_however_long_it_takes() -> None:
    problem = example_problem(example_workload(12, seed=5), world_size=4)
    found = []
    for hurry in (0.0, 1e9):  # clocks that stand still, and that leave no time
        times = count(0.0, hurry)
        search = Search(max_plans=1000, time_limit=1.0, clock=partial(next, times))
        found.append(run_sharders(sharders_for("auto"), problem, search))
    plans = [
        [(attempt.sharder, attempt.plan, attempt.evaluated) for attempt in each] for each in found
    ]
    assert plans[0] == plans[1]
    assert 500 < sum(attempt.evaluated for attempt in found[0]) <= 1000 + len(found[0])


def gains(clock: list[float], **options: object) -> Gains:
    search = Search(clock=lambda: clock[0], **options)  # type: ignore[arg-type]
    return Gains(search)


def told(best: float) -> Progress:
    return Progress(evaluated=1, best=best)


def test_a_search_ends_when_nothing_was_gained_for_as_long_as_all_gains_took() -> None:
    clock = [0.0]
    of = gains(clock, patience=2.0, time_limit=200.0)
    clock[0] = 3.0
    of.watch("annealing", told(2.0))
    assert not of.over("annealing")
    clock[0] = 4.0
    of.watch("annealing", told(1.9))  # a gain: twice 4 s and a fifth of the limit from here
    clock[0] = 51.9
    of.watch("annealing", told(1.8999))  # less than counts
    assert not of.over("annealing")
    clock[0] = 52.1
    assert of.over("annealing")
    assert of.over()
    assert of.early is SearchEnd.QUIET


def test_a_search_with_known_plans_waits_as_if_it_had_found_them() -> None:
    clock = [0.0]
    of = gains(clock, patience=2.0, time_limit=200.0, known_took=4.0)
    clock[0] = 0.1
    of.watch("annealing", told(2.0))  # the known plan
    assert of.gained_for == 4.0
    clock[0] = 51.9  # twice 4 s and a fifth of the limit after 4 s
    assert not of.over("annealing")
    clock[0] = 52.1
    assert of.over("annealing")


def test_a_problem_is_small_by_options_and_ranks() -> None:
    work = example_workload(3)
    assert is_small(example_problem(work, world_size=FEW_RANKS, num_nodes=4))
    assert not is_small(example_problem(work, world_size=2 * FEW_RANKS, num_nodes=8))
    assert not is_small(example_problem(example_workload(200), world_size=4))


def test_a_small_problem_is_quiet_for_less() -> None:
    clock = [5.0]
    search = Search(clock=lambda: clock[0], time_limit=10.0)
    small, large = Gains(search, is_small=True), Gains(search)
    for each in (small, large):
        clock[0] = 5.1  # what was loaded is no sign of how long plans take
        each.begin()
        clock[0] = 5.11
        each.watch("annealing", told(2.0))
    assert large.least_quiet == QUIET_SHARE * 10
    assert small.least_quiet == SMALL_QUIET_SHARE * 10
    # 3 times the 10 ms of the one gain come on top
    clock[0] = 5.11 + 0.3 + 0.029
    assert not small.over("annealing")
    clock[0] = 5.11 + 0.3 + 0.031
    assert small.over("annealing")
    assert not large.over("annealing")
    small.first_plan = 1.0
    assert small.least_quiet == SMALL_QUIET_PASSES


def test_quiet_is_counted_in_work_and_interpreted_work_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked = [0.0]
    monkeypatch.setattr("planner.search.search.time.process_time", lambda: worked[0])
    of = Gains(Search(time_limit=10.0, patience=0.0), is_small=True)
    of.watch("annealing", told(2.0))
    of.first_plan = 0.01
    assert not of.over("annealing")  # whatever the clock says: other processes had the processor
    worked[0] = 0.3 * 99
    monkeypatch.setattr("planner.search.gains.interpreted_modules", lambda: ("any",))
    assert not of.over("annealing")
    monkeypatch.setattr("planner.search.gains.interpreted_modules", tuple)
    assert of.over("annealing")


@pytest.mark.parametrize("few", [0, 10_000])
@pytest.mark.parametrize("passes", [0.0, 5.0, 50.0])
def test_where_a_first_plan_takes_long_a_search_is_quiet_for_longer(
    passes: float, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gains_module, "FEW_OPTIONS", few)
    monkeypatch.setattr(gains_module, "SMALL_QUIET_PASSES" if few else "QUIET_PASSES", passes)
    now, steps = [0.0], [(0.0, inf)]

    def clock() -> float:
        now[0] += 0.3
        return now[0]

    def watch(sharder: str, progress: Progress) -> None:
        del sharder
        if progress.best < steps[-1][1] * (1 - WORTH_WAITING):
            steps.append((now[0], progress.best))

    search = Search(time_limit=2000.0, clock=clock, watch=watch)
    problem = example_problem(example_workload(12), world_size=4)
    naive, annealing = run_sharders(("naive", "annealing"), problem, search)
    assert annealing.early is SearchEnd.QUIET
    share = SMALL_QUIET_SHARE if few else QUIET_SHARE
    quiet = max(share * search.time_limit, passes * naive.time)
    gained_for = steps[-1][0]
    waited = PATIENCE * gained_for + quiet
    assert quiet < annealing.time < gained_for + waited


@pytest.mark.parametrize(
    ("status", "early", "end"),
    [
        (SearchStatus.LIMIT, SearchEnd.QUIET, SearchEnd.QUIET),
        (SearchStatus.LIMIT, None, SearchEnd.LIMIT),
        (SearchStatus.CONVERGED, None, SearchEnd.CONVERGED),
    ],
)
def test_why_a_search_ended(status: SearchStatus, early: SearchEnd | None, end: SearchEnd) -> None:
    last = Attempt(sharder="annealing", plan=None, status=status, early=early)
    assert search_end(("annealing",), (last,)) is end


@pytest.mark.parametrize(
    ("found", "end", "status"),
    [
        (SearchStatus.CONVERGED, SearchEnd.CONVERGED, SearchStatus.CONVERGED),
        (SearchStatus.CONVERGED, SearchEnd.LIMIT, SearchStatus.LIMIT),
        (SearchStatus.CONVERGED, SearchEnd.INTERRUPTED, "stopped"),
        (SearchStatus.LIMIT, SearchEnd.QUIET, "stopped"),
        (SearchStatus.CONVERGED, SearchEnd.BOUND, "stopped"),
        (SearchStatus.OPTIMAL, SearchEnd.LIMIT, SearchStatus.OPTIMAL),
        (SearchStatus.GIVEN, SearchEnd.LIMIT, SearchStatus.GIVEN),
    ],
)
def test_the_status_of_a_plan_agrees_with_why_its_search_ended(
    found: SearchStatus, end: SearchEnd, status: str
) -> None:
    assert plan_status(found, end) == status


def test_sharders_that_had_no_time_left_are_the_limit() -> None:
    first = Attempt(sharder="naive", plan=None, status=SearchStatus.CONVERGED)
    assert search_end(("naive", "annealing"), (first,)) is SearchEnd.LIMIT


def test_a_sharder_that_has_told_of_nothing_yet_may_go_on() -> None:
    clock = [0.0]
    of = gains(clock)
    of.watch("naive", told(2.0))
    clock[0] = 100.0
    assert not of.over("lp")


@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_a_time_limit_is_a_time(limit: float) -> None:
    with pytest.raises(ValueError, match="time_limit must be 0 or more seconds"):
        Search(time_limit=limit)


@pytest.mark.parametrize("gap", [-0.1, 1.1, float("nan")])
def test_a_gap_is_a_share(gap: float) -> None:
    with pytest.raises(ValueError, match="gap must be a share of 0 to 1"):
        Search(gap=gap)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"gpus": "4"}, "'4'"), ({"gpus": 4.0}, "4.0"), ({"gpus": None}, "None"),
     ({"gpus": 4, "nodes": "2"}, "'2'")],
)  # fmt: skip
def test_numbers_of_gpus_and_nodes_are_whole_numbers(given: dict[str, Any], said: str) -> None:
    message = f"gpus: numbers of GPUs and nodes must be whole numbers, got {said}"
    asked: list[Callable[..., object]] = [planner.plan, planner.compare]
    for command in asked if "nodes" in given else [*asked, planner.sweep]:
        with pytest.raises(InputError, match=re.escape(message)):
            command(example_workload(4), **given, max_plans=1)


def test_any_whole_number_is_a_number_of_gpus() -> None:
    assert make_topology(load_profile("h100-sxm"), np.int64(16)).num_nodes == 2


def test_one_is_several() -> None:
    assert several("auto") == several(["auto"]) == ("auto",)
    assert several(8) == several((8,)) == (8,)
    assert several(()) == ()


def test_a_step_at_the_bound_ends_the_search() -> None:
    of = gains([0.0], enough=1.01)
    of.watch("naive", told(1.02))
    assert not of.over("naive")
    of.watch("naive", told(1.01))
    assert of.over("naive")
    assert of.early is SearchEnd.BOUND


def test_counted_plans_know_no_patience() -> None:
    clock = [0.0]
    of = gains(clock, max_plans=10)
    of.watch("annealing", told(2.0))
    clock[0] = 1e6
    assert not of.over("annealing")


def test_numbers_may_be_numpys(tmp_path: Path) -> None:
    def planned(rows: int, columns: int, batch: int, gpus: int, seed: int) -> planner.Planned:
        table = planner.EmbeddingTable(
            name="a", num_embeddings=rows, embedding_dim=columns, min_shard_dim=columns
        )
        workload = planner.Workload(tables=(table,), local_batch_size=batch)
        return planner.plan(workload, gpus=gpus, seed=seed, sharder="cost_greedy", baseline=None)

    numbers = 40_000_000, 128, 8192, 4, 1  # 20 GB of weights are more than 32 bits count
    made = planned(*np.array(numbers, np.uint32))
    assert made.plan == planned(*numbers).plan
    assert made.report.weight_bytes == 4 * 40_000_000 * 128
    made.save(tmp_path / "plan.json")
    assert planner.load_plan(tmp_path / "plan.json").workload == made.workload
