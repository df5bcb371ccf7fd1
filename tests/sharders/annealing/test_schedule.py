"""More time never gives a worse plan; sets of sharding types are tried in an order that pays."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice, pairwise, product, takewhile
from math import inf
from random import Random

import pytest

from bench.population import PopulationInstance
from costmodel.domain.plan import ShardingType
from costmodel.memory.rank_memory import check_memory
from planner.examples import example_problem, example_workload
from sharders.annealing import schedule, sharder
from sharders.annealing.programs import Programs, SolvedSet
from sharders.annealing.schedule import BALANCE_RANGE, AnnealingSearch
from sharders.annealing.sharder import Annealing
from sharders.annealing.type_sets import (
    FAR,
    FIRST,
    MADE_AT_ONCE,
    PROGRAM,
    RULES,
    Start,
    TypeSets,
    bits,
)
from sharders.engine.params import MoveParams
from sharders.engine.problem_arrays import ProblemArrays
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices
from sharders.greedy.one_pass import SizeGreedy
from sharders.greedy.tuning import Found
from sharders.problem.packing import packed
from sharders.problem.sharding_problem import Budget, Progress, SearchStatus, ShardingProblem

PLANS = (50, 400, 3000, 100_000)


def problem() -> ShardingProblem:
    return example_problem(example_workload(40, seed=3), world_size=16, num_nodes=2)


def test_a_run_is_the_same_however_many_moves_are_drawn_at_a_time() -> None:
    posed, ends = problem(), []
    schedule = 1e-3, 1e-5, 5000.0
    for at_once in (5000, 1000, 70):
        search = AnnealingSearch(Engine(posed), Budget(), Random(0))
        start = first_plan(search)
        engine = search.engine
        engine.start(start, 7)
        while engine.run.moves < 5000:
            engine.anneal(min(at_once, 5000 - engine.run.moves), schedule)
        ends.append((engine.run.best_time, engine.run.penalised_time, choices(engine.present())))
    assert ends[0] == ends[1] == ends[2]


def first_plan(search: AnnealingSearch) -> Choices:
    start = next(search.sets.at_once(lambda: search.best[0]))
    assert start is not None
    return start.plans[0][1]


def choices(present: Choices) -> tuple[list[int], list[list[int]]]:
    return list(present.option), [list(row) for row in present.ranks]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_longer_search_finds_first_what_a_shorter_one_finds(seed: int) -> None:
    posed, seen = problem(), []
    for plans in PLANS:
        found: list[float] = []

        def report(progress: Progress, found: list[float] = found) -> None:
            found.append(progress.best)

        budget = Budget(max_evaluations=plans, report=report)
        result = Annealing().shard(posed, budget, Random(seed))
        assert result.status is SearchStatus.LIMIT
        seen.append((found, result.step_time))
    for (shorter, step), (longer, later) in pairwise(seen):
        assert longer[: len(shorter) - 1] == shorter[:-1]
        assert later <= step * (1 + 1e-9)
    assert seen[-1][1] < seen[0][1]


def test_only_types_that_are_offered_are_drawn() -> None:
    posed = problem()
    engine = Engine(posed)
    search = AnnealingSearch(engine, Budget(), Random(0))
    types = 0b0001010  # table_wise and column_wise
    start = search.sets.start_of(types)
    engine.offer(types)
    engine.start(start.plans[0][1], 3)
    run = engine.anneal(5000, (1.0, 1.0, 1.0))
    assert run.decided > 1000
    allowed = [
        any(types >> int(kind) & 1 for kind in engine.search.tables.kind[first:last])
        for first, last in zip(
            engine.search.tables.options[:-1], engine.search.tables.options[1:], strict=True
        )
    ]
    kinds = [int(engine.search.tables.kind[option]) for option in engine.present().option]
    assert all(types >> kind & 1 for kind, some in zip(kinds, allowed, strict=True) if some)
    assert len(set(kinds)) > 1


def test_sets_of_types_beside_one_have_plans_where_programs_promise_enough() -> None:
    sets = AnnealingSearch(Engine(problem()), Budget(), Random(0)).sets
    own = bits([ShardingType.COLUMN_WISE, ShardingType.TABLE_ROW_WISE])
    started, refused = [], []
    best = sets.value(own) * 1.2
    while (start := sets.beside([own], best)) is not None:
        differences = start.type_bits ^ own
        assert 0 < differences.bit_count() <= 2
        assert start.type_bits.bit_count() - own.bit_count() in {-1, 0, 1}
        (started if start.plans else refused).append(start.type_bits)
    assert len({*started, *refused}) == len(started) + len(refused)
    assert started
    assert all(sets.value(types) < best for types in started)
    assert refused
    assert all(sets.value(types) >= best for types in refused)
    assert sets.beside([own], inf) is None  # none is tried twice


def test_the_plan_of_a_program_and_that_of_a_greedy_both_contend() -> None:
    posed = example_problem(example_workload(80, seed=6), world_size=16, num_nodes=2)
    search = AnnealingSearch(Engine(posed), Budget(), Random(0))
    start = search.sets.start_of(bits(FIRST))
    search.join(start)
    assert {each.type_bits for each in search.contenders} == {bits(FIRST)}
    reached = {each.origin: each.time for each in search.contenders}
    greedy, program = (time for time, _ in reversed(start.plans))
    assert reached[0] < greedy
    assert reached[1] < program
    search.join(Start(start.type_bits, start.plans[1:]))  # the greedy one again, now not annealed
    assert {each.origin: each.time for each in search.contenders} == pytest.approx(reached)


def test_plans_that_overfill_memory_contend_if_annealing_makes_them_fit() -> None:
    mended = []
    for seed, fill in product(range(8), (0.93, 0.95, 0.99)):
        posed = example_problem(example_workload(12, seed=seed), fill=fill)
        search = AnnealingSearch(Engine(posed), Budget(), Random(0))
        start = search.sets.start_of(bits([ShardingType.TABLE_WISE]))
        search.join(start)
        for contender in (each for each in search.contenders if each.fits):
            plan = search.engine.plan_of(contender.choices)
            check_memory(posed.workload, posed.topology, plan)
            assert contender.time == pytest.approx(posed.objective.step_time(plan), rel=1e-9)
            program = contender.origin == len(start.plans) - 1
            mended.append(program and start.plans[0][0] == inf)
    assert any(mended)
    assert not all(mended)


@pytest.mark.slow
def test_sets_of_which_hardly_any_plan_fits_are_packed_into_memory() -> None:
    posed = PopulationInstance("tuning-5827").problem()  # 30 tables on 64 GPUs
    result, _ = sharder.anneal(posed, Budget(max_evaluations=15_000), Random(0))
    check_memory(posed.workload, posed.topology, result.plan)
    assert {each.sharding_type for each in result.plan.tables} == {ShardingType.COLUMN_WISE}
    assert result.step_time < 6.64e-3  # runs alone ended ten seconds at 9.64 ms, of other types


def test_what_does_not_fit_is_packed_in_turn_with_runs_and_given_up_at_last() -> None:
    posed = PopulationInstance("tuning-5827").problem()
    search = AnnealingSearch(Engine(posed), Budget(), Random(0))
    known = search.sets.start_of(search.sets.offered)
    search.join(known)
    assert [each.fits for each in search.contenders] == [True]
    first = search.contenders[0].time
    for types in ([ShardingType.COLUMN_WISE], [ShardingType.TABLE_ROW_WISE], FIRST):
        search.join(search.sets.start_of(bits(types)))
    fit, *others = search.contenders
    assert fit.time == first
    said = [search.sets.value(each.type_bits) for each in others]  # none says so: no room at all
    assert [each.type_bits for each in others] == [bits([ShardingType.COLUMN_WISE]), bits(FIRST)]
    assert said == sorted(said)
    assert said[-1] < first
    assert search.engine.plan_of(others[0].choices)  # it has one, which does not fit
    while not all(each.fits for each in search.contenders):
        moves = search.moves
        search.run_next()
        assert search.moves > moves
    assert search.contenders[0].type_bits == bits([ShardingType.COLUMN_WISE])


def test_after_a_run_that_gained_nothing_the_next_begins_with_the_first_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = AnnealingSearch(Engine(problem()), Budget(), Random(0))
    search.join(search.sets.start_of(bits(FIRST)))
    begun: list[Choices] = []
    weights: list[float] = []
    gains = iter([0.9, 1.0, 0.9])
    contender = search.contenders[0]
    contender.is_stuck = False

    def anneal(
        plan: Choices, length: int, hot: float, balance_weight: float
    ) -> tuple[float, Choices]:
        del length, hot
        begun.append(plan)
        weights.append(balance_weight)
        return contender.time * next(gains), plan.copy()

    monkeypatch.setattr(search, "_anneal", anneal)
    search.contenders = [contender]
    expected = []
    for is_anew in (False, False, True):
        expected.append(contender.first if is_anew else contender.choices)
        search.run_next()
    assert list(map(id, begun)) == list(map(id, expected))
    assert not contender.is_stuck
    low, high = BALANCE_RANGE
    assert len(set(weights)) == len(weights)  # uneven ranks count for more or less
    assert low <= min(weights) < max(weights) <= high


def test_types_of_the_best_plan_change_together_where_runs_gain_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = AnnealingSearch(Engine(problem()), Budget(), Random(0))
    search.join(search.sets.start_of(bits(FIRST)))
    descend, changed = search.sets.changes.descend, []

    def noted(plan: Choices, is_over: Callable[[], bool]) -> list[Found]:
        changed.append(search.engine.types_of(plan))
        return descend(plan, is_over)

    monkeypatch.setattr(search.sets.changes, "descend", noted)
    search.contenders[0].is_stuck = False
    search.run_next()
    assert not changed
    types = search.engine.types_of(search.contenders[0].choices)
    before = search.contenders[0].time
    search.contenders[0].is_stuck = True
    search.run_next()
    assert changed == [types]
    assert search.contenders[0].time <= before
    for _ in range(5):
        search.contenders[0].is_stuck = True
        search.run_next()
    assert len(set(changed)) == len(changed)  # once for every set of types


def test_the_set_of_the_best_plan_has_plans_of_its_own_whichever_set_it_began_in() -> None:
    search = AnnealingSearch(Engine(problem()), Budget(), Random(0))
    types = bits([ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE])
    plan = search.sets.start_of(types).plans[-1]
    search.sets.has_room.clear()
    search.join(Start(search.sets.offered, [plan]))
    own = search.own_set()
    assert own is not None
    assert (
        own.type_bits == search.engine.types_of(search.contenders[0].choices) != search.sets.offered
    )
    assert own.plans
    assert search.own_set() is None


def tried_of(sets: TypeSets, looked_at: int) -> list[int]:
    """Return the sets that have all their plans made, among so many that are looked at."""
    some = islice(sets.explored, looked_at)
    return [start.type_bits for start in some if start.plans and start.type_bits in sets.has_room]


def test_a_set_that_is_looked_at_has_a_plan_of_what_its_program_says_at_sight() -> None:
    search = AnnealingSearch(Engine(problem()), Budget(), Random(0))
    sets = search.sets
    seen = [start for start in islice(sets.explored, 12) if start.type_bits not in sets.has_room]
    assert seen
    for start in seen:
        assert len(start.plans) == 1
        time, choices = start.plans[0]
        assert time == search.engine.start(choices)
        assert sets.prices(start.type_bits) is not None
        search.join(start)
    assert {(each.type_bits, each.origin) for each in search.contenders} == {
        (start.type_bits, PROGRAM) for start in seen
    }


def test_neighbours_come_by_what_their_programs_promise_better_ones_at_once() -> None:
    sets = AnnealingSearch(Engine(problem()), Budget(), Random(0)).sets
    first = next(sets.explored).type_bits
    seen = list(takewhile(lambda start: start.type_bits not in sets.has_room, sets.explored))
    promised = [sets.value(start.type_bits) / sets.value(first) for start in seen]
    ordinary = [each for each in promised if each >= 1]
    assert {first ^ start.type_bits for start in seen} == set(sets.singles)
    assert len(ordinary) > 1
    assert ordinary == sorted(ordinary)
    assert promised == [each for each in promised if each < 1] + ordinary


def test_where_the_first_set_has_no_room_its_tables_may_be_whole() -> None:
    posed = example_workload(40, seed=3)
    kinds = ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE
    large = replace(posed.tables[0], num_embeddings=150_000_000, sharding_types=kinds)
    tables = large, *posed.tables[1:]
    engine = Engine(example_problem(replace(posed, tables=tables), world_size=16, num_nodes=2))
    sets = AnnealingSearch(engine, Budget(), Random(0)).sets
    whole = bits([*FIRST, ShardingType.TABLE_WISE])
    assert next(sets.explored).type_bits == whole
    assert sets.value(whole) < sets.value(bits(FIRST)) == inf
    assert tried_of(sets, 12)


def test_every_set_has_the_types_that_some_table_allows_alone() -> None:
    posed = example_workload(40, seed=3)
    row_wise = replace(posed.tables[0], sharding_types=(ShardingType.ROW_WISE,))
    tables = row_wise, *posed.tables[1:]
    engine = Engine(example_problem(replace(posed, tables=tables), world_size=16, num_nodes=2))
    sets = AnnealingSearch(engine, Budget(), Random(0)).sets
    forced = bits([ShardingType.ROW_WISE])
    starts = [
        (start.type_bits, start.type_bits in sets.has_room) for start in islice(sets.explored, 24)
    ]
    assert starts[0] == (bits(FIRST) | forced, False)
    assert all(types & forced for types, _ in starts)
    tried = [types for types, is_tried in starts if is_tried]
    assert len(set(tried)) == len(tried) > 1


def test_runs_make_one_program_of_new_groups_in_so_many_moves() -> None:
    made = []
    for moves_per_step in (310, 3000):
        engine = Engine(problem(), params=MoveParams(moves_per_step=moves_per_step))
        search = AnnealingSearch(engine, Budget(), Random(0))
        engine.start(first_plan(search), 7)
        before = len(engine.groups_of)
        engine.anneal(1500, (1.0, 1.0, 1500.0))
        made.append(len(engine.groups_of) - before)
    assert made == [1 + 1500 // 310, 1]


def test_around_a_set_that_has_no_room_others_are_tried_only_while_none_has() -> None:
    posed = example_workload(40, seed=3)
    kinds = ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE
    large = replace(posed.tables[0], num_embeddings=150_000_000, sharding_types=kinds)
    assert ShardingType.TABLE_WISE not in FIRST  # so the first set would replicate it
    tables = large, *posed.tables[1:]
    engine = Engine(example_problem(replace(posed, tables=tables), world_size=16, num_nodes=2))
    sets = AnnealingSearch(engine, Budget(), Random(0)).sets
    values: dict[int, float] = {}

    def noting(method: Callable[[int], SolvedSet | None]) -> Callable[[int], SolvedSet | None]:
        def noted(types: int) -> SolvedSet | None:
            found = method(types)
            values[types] = inf if found is None else found.expected
            return found

        return noted

    sets.programs.solve = noting(sets.programs.solve)  # type: ignore[method-assign]
    sets.programs.estimate = noting(sets.programs.estimate)  # type: ignore[method-assign]
    list(islice(sets.explored, 12))
    assert values[bits(FIRST)] == inf
    assert min(values.values()) < inf
    singles = [1 << number for number in range(len(ShardingType))]
    around = {bits(FIRST), *(types for types, value in values.items() if value < inf)}
    assert all(any(types ^ single in around for single in singles) for types in values)


def test_sets_are_not_judged_by_what_is_promised_for_one_that_has_no_room() -> None:
    engine = Engine(problem())
    sets = AnnealingSearch(engine, Budget(), Random(0)).sets
    promised = {bits(FIRST): 3.0, bits(FIRST) ^ sets.singles[0]: 1.0}
    solve, start_of = sets.programs.solve, sets.start_of

    def promise(types: int) -> SolvedSet | None:
        solved = solve(types)
        return solved and solved._replace(expected=promised.get(types, 2.0))

    def start(types: int) -> Start:
        made = start_of(types)
        if promised.get(types) == 1.0:
            sets.has_room[types] = False
            return Start(types, [])
        return made

    sets.programs.solve = sets.programs.estimate = promise  # type: ignore[method-assign]
    sets.start_of = start  # type: ignore[method-assign]
    tried = tried_of(sets, 40)
    assert sum(promised.get(types, 2.0) == 2.0 for types in tried) > 1


def test_where_one_type_alone_is_best_all_are_looked_at() -> None:
    sets = AnnealingSearch(Engine(problem()), Budget(), Random(0)).sets
    solve = sets.programs.solve

    def counted(types: int) -> SolvedSet | None:
        solved = solve(types)
        return solved and solved._replace(expected=float(types.bit_count()))

    sets.programs.solve = sets.programs.estimate = counted  # type: ignore[method-assign]
    assert {start.type_bits for start in sets.explored} >= set(sets.singles)


def test_the_best_plan_of_one_type_alone_is_among_the_first() -> None:
    """With small batches, launches and collectives cost more than what is looked up."""
    few = replace(example_workload(40, seed=3), local_batch_size=64)
    posed = example_problem(few, world_size=16, num_nodes=2)
    search = AnnealingSearch(Engine(posed), Budget(), Random(0))
    sets, times = search.sets, dict[int, float]()
    for single in sets.singles:
        search.engine.offer(single)
        times[single] = min(map(search.engine.fill, RULES))
    best = min(times, key=times.__getitem__)
    early = takewhile(
        lambda start: start is None or len(sets.has_room) == 0, sets.at_once(lambda: 1.0)
    )
    alone = [start for start in early if start and not start.is_rough and start.type_bits == best]
    assert min(start.plans[0][0] for start in alone) <= times[best]


def test_plans_of_kinds_are_among_the_first() -> None:
    sets = AnnealingSearch(Engine(problem()), Budget(), Random(0)).sets
    assert not sets.kinds.is_one_kind
    (best, _), *_ = sorted(filter(None, sets.kinds.descents()), key=lambda found: found[0])
    starts = filter(None, sets.at_once(lambda: 1.0))
    assert best in [time for start in starts for time, _ in start.plans]


def test_a_run_follows_whenever_a_neighbours_plan_is_the_best_so_far() -> None:
    def runs(best: Callable[[], float]) -> int:
        sets = AnnealingSearch(Engine(problem()), Budget(), Random(0)).sets
        return sum(start is None for start in sets.at_once(best))

    falling = count()
    assert runs(lambda: -float(next(falling))) > runs(lambda: 1.0)


def test_no_more_than_two_neighbours_come_without_a_run() -> None:
    sets = AnnealingSearch(Engine(problem()), Budget(), Random(0)).sets
    starts = [*sets.at_once(lambda: 1e-9)]
    made, most = 0, 0
    for start in starts:
        made = made + 1 if start and start.origin == PROGRAM else 0
        most = max(most, made)
    assert len({start.type_bits for start in starts if start and start.origin == PROGRAM}) > 4
    assert most == MADE_AT_ONCE


@pytest.mark.parametrize("over", [1.01, 1.3])
def test_all_types_run_early_where_the_program_says_far_less_than_plans_take(over: float) -> None:
    sets = AnnealingSearch(Engine(problem()), Budget(), Random(0)).sets
    starts = sets.at_once(lambda: over * sets.value(bits(FIRST)))
    assert None in starts  # which goes on until the first run
    assert (next(starts) is None) == (over > FAR)


def test_programs_have_no_large_shards_where_these_make_ranks_uneven() -> None:
    posed = example_workload(40, seed=3)
    kinds = ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE
    tables = tuple(replace(table, sharding_types=kinds) for table in posed.tables)
    few = replace(posed, tables=tables[:4])
    asked = example_problem(few, world_size=16, num_nodes=2)
    solved = Programs(Engine(asked)).solve(bits(kinds))
    assert solved is not None
    arrays = asked.groundwork.arrays
    splits = arrays.codes.num_column_shards
    assert (splits[solved.options] > 1).all()
    whole = splits == 1
    assert (arrays.total_load[whole] <= arrays.total_load[solved.options]).all()  # none costs less


def test_rough_plans_are_known_but_nothing_runs_from_them() -> None:
    search = AnnealingSearch(Engine(problem()), Budget(), Random(0))
    first = next(search.sets.at_once(lambda: search.best[0]))
    assert first is not None
    assert first.is_rough
    search.join(first)
    assert search.best == first.plans[0]
    assert not search.contenders
    assert search.moves == 0


def test_a_search_that_gains_nothing_is_begun_anew_and_the_best_plan_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    posed = example_problem(example_workload(4, seed=3), world_size=8, num_nodes=2)
    monkeypatch.setattr(schedule, "QUIET_MOVES", 100)
    monkeypatch.setattr(sharder, "MAX_FRUITLESS", 0)
    once, _ = sharder.anneal(posed, Budget(), Random(0))
    monkeypatch.setattr(sharder, "MAX_FRUITLESS", 3)
    more, _ = sharder.anneal(posed, Budget(), Random(0))
    assert once.status is more.status is SearchStatus.CONVERGED
    assert more.evaluated > 3 * once.evaluated
    assert more.step_time <= once.step_time
    limited = Budget(max_evaluations=2 * once.evaluated)
    some, _ = sharder.anneal(posed, limited, Random(0))
    assert some.status is SearchStatus.LIMIT
    assert more.step_time <= some.step_time <= once.step_time


@pytest.mark.parametrize("offers_it", [True, False])
def test_where_the_first_rules_have_no_room_tables_are_packed_at_once(
    monkeypatch: pytest.MonkeyPatch, *, offers_it: bool
) -> None:
    posed, told = problem(), []
    monkeypatch.setattr(TypeSets, "rules_fit", lambda _: False)
    if not offers_it:  # until a search is begun that knows the plan
        answers = iter([False])
        monkeypatch.setattr(ProblemArrays, "has", lambda *_: next(answers, True))
    budget = Budget(should_stop=lambda: bool(told), report=lambda each: told.append(each.best))
    result = Annealing().shard(posed, budget, Random(0))
    assert result.plan == packed(posed.groundwork)
    assert told == [pytest.approx(result.step_time, rel=1e-9)]
    later = Annealing().shard(posed, Budget(max_evaluations=3000), Random(0))
    assert later.step_time < result.step_time


def test_what_cannot_be_packed_either_may_still_fit_by_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    posed = problem()
    monkeypatch.setattr(TypeSets, "rules_fit", lambda _: False)
    posed.__dict__["packing"] = None
    result = Annealing().shard(posed, Budget(max_evaluations=1000), Random(0))
    check_memory(posed.workload, posed.topology, result.plan)


def test_a_search_that_ends_with_its_first_plan_makes_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[float] = []
    monkeypatch.delattr(SizeGreedy, "shard")
    budget = Budget(should_stop=lambda: bool(told), report=lambda each: told.append(each.best))
    result = Annealing().shard(problem(), budget, Random(0))
    assert told[0] == pytest.approx(result.step_time, rel=1e-9)
