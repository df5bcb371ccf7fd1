"""The choice among plans: expected steps first, then the documented order of preferences."""

from dataclasses import replace
from math import inf
from random import Random

import pytest
from plans import placed

import planner
from costmodel.base.units import GIB, Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.memory.rank_memory import fits
from planner.decision.choice import (
    INTERPRETED_SAMPLES,
    SAME_STEP,
    SURE,
    choose,
    choosing_time,
    fastest_with_room,
)
from planner.decision.narrow import NARROW
from planner.decision.robust import (
    PLANS_PER_LOOK,
    Preference,
    RobustSearch,
    robust_search,
    with_one_block,
)
from planner.examples import example_problem, example_workload
from planner.files.profiles import load_profile
from planner.search.headroom import leaving
from planner.search.search import Attempt
from planner.verbs.topologies import make_topology
from sharders.annealing.plan_editor import PlacedOption
from sharders.greedy.one_pass import Naive
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem


def forever() -> Seconds:
    return inf


def at_once() -> Seconds:
    return 0.0


@pytest.fixture
def hosted() -> ShardingProblem:
    """Eight like tables whose lookups are hidden behind the host, on four ranks."""
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=50_000, embedding_dim=64, pooling_factor=2)
        for i in range(8)
    )
    return example_problem(Workload(tables=tables, local_batch_size=256), world_size=4)


def attempt(problem: ShardingProblem, sharder: str, plan: ShardingPlan) -> Attempt:
    return Attempt(sharder=sharder, plan=plan, step_time=problem.objective.step_time(plan))


def test_equal_steps_go_to_even_loads(hosted: ShardingProblem) -> None:
    one_sided = attempt(hosted, "first", placed(hosted, 0, 0, 0, 0, 1, 1, 1, 1))
    choice = choose(hosted, [one_sided], forever)
    assert choice.attempt.plan is not None
    ranks = sorted(sharding.ranks for sharding in choice.attempt.plan.tables)
    assert ranks == sorted([(0,), (1,), (2,), (3,)] * 2)
    assert choice.attempt.step_time <= one_sided.step_time * 1.01


def test_an_interpreted_step_is_timed_under_fewer_samples(
    hosted: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [attempt(hosted, "first", placed(hosted, 0, 0, 0, 0, 1, 1, 1, 1))]
    compiled = choose(hosted, found, at_once, improve=False)
    monkeypatch.setattr("planner.decision.choice.interpreted_modules", lambda: ("any",))
    interpreted = choose(hosted, found, at_once, improve=False)
    assert len(interpreted.samples.times) == INTERPRETED_SAMPLES < len(compiled.samples.times)
    assert interpreted.confidence.step_time == pytest.approx(
        compiled.confidence.step_time, rel=0.02
    )


def test_small_tables_are_not_cut_over_all_ranks(hosted: ShardingProblem) -> None:
    columns = TableOption(sharding_type=ShardingType.COLUMN_WISE, num_column_shards=4)
    even = placed(hosted, 0, 1, 2, 3, 0, 1, 2, 3)
    cut = make_sharding(hosted.workload.tables[0], hosted.topology, columns, (0, 1, 2, 3))
    first = make_plan(hosted.topology, [cut, *even.tables[1:]])
    choice = choose(hosted, [attempt(hosted, "columns", first)], forever)
    assert choice.attempt.plan is not None
    assert all(len(sharding.shards) == 1 for sharding in choice.attempt.plan.tables)


def test_the_order_of_preferences() -> None:
    none = Preference(**dict.fromkeys(Preference._fields, 5))
    worse_after = dict.fromkeys(Preference._fields, 9)
    for field in Preference._fields:
        del worse_after[field]
        assert none._replace(**{field: 4}, **worse_after) < none
    assert Preference._fields == (
        "full",
        "small",
        "narrow",
        "cuts",
        "types",
        "skewed",
        "shards",
        "doubled",
        "uneven",
    )


def test_preferences_are_counted_as_they_are(hosted: ShardingProblem) -> None:
    search = RobustSearch(hosted, lambda: True)
    even = search.start(placed(hosted, 0, 1, 2, 3, 0, 1, 2, 3))
    uneven = search.start(placed(hosted, 0, 0, 0, 0, 1, 1, 1, 1))
    assert even < uneven
    assert even.uneven == 200  # lookups and memory, both 1: as even as can be
    assert uneven.uneven == 400  # two of four ranks have all: 4 x 2 x 0.5^2
    assert (even.shards, even.cuts, even.types, even.narrow) == (8, 10, 1, 0)
    shape = search._shape(0, PlacedOption(TableOption(sharding_type=ShardingType.ROW_WISE), ()))
    assert (shape.shards, shape.small) == (4, 1)
    alone = RobustSearch(example_problem(example_workload(2), world_size=1), lambda: True)
    kinds = ShardingType.TABLE_WISE, ShardingType.ROW_WISE
    shapes = [alone._shape(0, PlacedOption(TableOption(sharding_type=k), (0,))) for k in kinds]
    assert [each.shards for each in shapes] == [1, 1]
    columns = TableOption(sharding_type=ShardingType.COLUMN_WISE, num_column_shards=4)
    assert NARROW > 64 // 4
    assert search._shape(0, PlacedOption(columns, (0, 1, 2, 3))).narrow == 4


def test_a_descent_never_lengthens_the_mean_step_by_more_than_its_slack() -> None:
    problem = example_problem(example_workload(6), world_size=2)
    search = RobustSearch(problem, lambda: True)
    for seed in range(2):
        start = Naive().shard(problem, Budget(), Random(seed)).plan
        end = search.descend(start)
        assert search.mean(end) <= search.mean(start) * 1.006
        planner_valid(problem, end)


def planner_valid(problem: ShardingProblem, plan: ShardingPlan) -> None:
    from costmodel.domain.validity import check_plan
    from costmodel.memory.rank_memory import check_memory

    check_plan(problem.workload, problem.topology, plan)
    check_memory(problem.workload, problem.topology, plan)


@pytest.mark.parametrize(("pooling", "is_tempting"), [(1, False), (100, True)])
def test_a_fuller_plan_is_taken_only_if_it_is_surely_faster(
    pooling: int, *, is_tempting: bool
) -> None:
    """Three of four tables fill a rank to 93%; the fourth is read as often as they."""
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=10**7, embedding_dim=64, pooling_factor=often)
        for i, often in enumerate((3 * pooling, pooling, pooling, pooling))
    )
    workload = Workload(tables=tables, local_batch_size=4096)
    problem = example_problem(workload, world_size=2, fill=0.62)
    roomy = leaving(problem, 0.1)
    full = attempt(problem, "full", placed(problem, 0, 1, 1, 1))
    even = attempt(problem, "even", placed(problem, 0, 0, 1, 1))
    assert fits(workload, problem.topology, full.found)
    assert not fits(workload, roomy.topology, full.found)
    found = sorted([full, even], key=lambda each: each.step_time)
    choice = choose(roomy, found, at_once, whole=problem)
    assert choice.attempt.sharder == "even"
    assert (choice.fuller is not None) is is_tempting
    assert (found[0] is full) is is_tempting
    if choice.fuller is not None:
        assert not choice.fuller.is_chosen
        assert 0.5 < (choice.fuller.probability_slower or 0.0) < SURE
    assert fastest_with_room(roomy, problem, found) is even
    alone = choose(roomy, [full], at_once, whole=problem, improve=False)
    assert alone.fuller is not None
    assert alone.fuller.is_chosen
    assert alone.fuller.longer is None
    assert fastest_with_room(roomy, problem, [full]) is full


def test_whole_tables_share_the_collectives_of_split_ones(hosted: ShardingProblem) -> None:
    columns = TableOption(sharding_type=ShardingType.COLUMN_WISE)
    assert all(columns not in options for options in hosted.options.values())
    assert all(columns in options for options in with_one_block(hosted).options.values())


def test_nothing_is_changed_where_one_sharder_was_asked_for(hosted: ShardingProblem) -> None:
    one_sided = attempt(hosted, "first", placed(hosted, 0, 0, 0, 0, 1, 1, 1, 1))
    even = attempt(hosted, "other", placed(hosted, 0, 1, 2, 3, 0, 1, 2, 3))
    choice = choose(hosted, [one_sided, even], forever, improve=False)
    assert choice.attempt is one_sided
    assert choice.simple is None
    assert choice.plans == (one_sided.plan, even.plan)


def test_without_time_the_search_has_the_last_word(hosted: ShardingProblem) -> None:
    first = attempt(hosted, "first", placed(hosted, 0, 1, 2, 3, 0, 1, 2, 3))
    equal = replace(
        attempt(hosted, "baseline", placed(hosted, 1, 0, 2, 3, 0, 1, 2, 3)),
        status=SearchStatus.GIVEN,
    )
    assert robust_search(hosted, at_once) is None
    choice = choose(hosted, [first, equal], at_once)
    assert choice.attempt is first
    assert choice.of(equal) is not None  # what is compared with is timed even so


def test_a_known_plan_that_is_better_is_taken() -> None:
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=10**6, embedding_dim=128, pooling_factor=80)
        for i in range(4)
    )
    problem = example_problem(Workload(tables=tables, local_batch_size=8192), world_size=4)
    together = attempt(problem, "naive", placed(problem, 0, 0, 0, 1))
    apart = replace(
        attempt(problem, "torchrec_port", placed(problem, 0, 1, 2, 3)), status=SearchStatus.GIVEN
    )
    assert apart.step_time < together.step_time * (1 - SAME_STEP)
    choice = choose(problem, [together, apart], at_once)
    assert choice.attempt.sharder == "torchrec_port"
    assert choice.confidence.num_candidates == 2


def test_narrow_blocks_become_wide_where_they_are() -> None:
    """Ranks look busy by the lookups of the table itself; elsewhere it would add to others'."""
    columns = ShardingType.COLUMN_WISE
    tables = tuple(
        EmbeddingTable(
            name=name,
            num_embeddings=10**6,
            embedding_dim=64,
            pooling_factor=pooling,
            sharding_types=(columns,),
        )
        for name, pooling in (("hot", 150), ("b", 3), ("c", 2))
    )
    workload = Workload(tables=tables, local_batch_size=16384)
    topology = make_topology(load_profile("a100-sxm-80gb"), 8)
    problem = ShardingProblem.of(workload, topology)
    ranks = (0, 1, 4, 5), (3, 7), (2, 6)
    options = [TableOption(sharding_type=columns, num_column_shards=len(own)) for own in ranks]
    shardings = map(make_sharding, tables, [topology] * 3, options, ranks)
    search = RobustSearch(problem, lambda: True, 2)
    assert search.descend(make_plan(topology, list(shardings))).table("hot").ranks == (0, 1)


def test_plans_that_differ_elsewhere_only_are_told_apart() -> None:
    """With so slow a host all placements take as long; with a faster one the heap's do not."""
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=10**6, embedding_dim=64, pooling_factor=20)
        for i in range(6)
    )
    problem = example_problem(Workload(tables=tables, local_batch_size=2048), world_size=2)
    heap, even = placed(problem, 0, 0, 0, 0, 1, 1), placed(problem, 0, 0, 0, 1, 1, 1)
    predicted = problem.objective.step_time
    assert predicted(heap) == pytest.approx(predicted(even), rel=1e-4)
    search = RobustSearch(problem, lambda: True)
    found = list(search.elsewhere(heap))
    assert len(found) == 8
    assert search.mean(even) < 0.996 * search.mean(heap)
    assert min(map(search.mean, found)) == pytest.approx(search.mean(even), rel=1e-4)
    assert len(list(RobustSearch(problem, lambda: False).elsewhere(heap))) == 2


def test_a_comparison_chooses_only_where_plans_can_be_made_better(hosted: ShardingProblem) -> None:
    assert choosing_time(hosted, 1.0) == pytest.approx(0.4)
    assert choosing_time(hosted, 0.1) == 0.0


def test_interpreted_descents_take_too_long_for_a_usual_limit(
    hosted: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.decision.robust.interpreted_modules", lambda: ("any",))
    assert robust_search(hosted, lambda: 10.0) is None
    assert choosing_time(hosted, 10.0) == 0.0
    assert robust_search(hosted, forever) is not None


def test_descents_are_counted_where_plans_are(hosted: ShardingProblem) -> None:
    search = robust_search(hosted, forever, 2 * PLANS_PER_LOOK)
    assert search is not None
    assert [search.has_time() for _ in range(3)] == [True, True, False]


@pytest.mark.slow
def test_the_first_example_uses_all_its_gpus() -> None:
    tables = (
        EmbeddingTable(name="big", num_embeddings=10**7, embedding_dim=128, pooling_factor=20),
        EmbeddingTable(name="often", num_embeddings=10**6, embedding_dim=128, pooling_factor=80),
        *(EmbeddingTable(name=f"s{i}", num_embeddings=20_000, embedding_dim=64) for i in range(6)),
    )
    workload = Workload(tables=tables, local_batch_size=2048)
    planned = planner.plan(workload, gpus=4, baseline="none", max_plans=200)
    used = {rank for sharding in planned.plan.tables for rank in sharding.ranks}
    assert used == {0, 1, 2, 3}
    assert planned.report.verdict is not None
    assert all(rank.memory.tables < 40 * GIB for rank in planned.report.ranks)


@pytest.mark.slow
def test_the_same_count_of_plans_gives_the_same_choice() -> None:
    workload = example_workload(2)
    first, second = (
        planner.plan(workload, gpus=2, baseline="none", max_plans=50) for _ in range(2)
    )
    assert first.plan == second.plan
    assert first.report.confidence == second.report.confidence
