from dataclasses import fields, replace

from load_objective import LoadObjective

from planner.examples import example_problem, example_workload
from sharders.problem.groundwork import Groundwork
from sharders.problem.packing import packed
from sharders.problem.sharding_problem import ShardingProblem


def ground() -> Groundwork:
    return example_problem(example_workload(3), world_size=4).groundwork


def test_what_is_known_or_minimised_changes_and_the_groundwork_stays() -> None:
    problem = example_problem(example_workload(3), world_size=4)
    plan = packed(problem.groundwork)
    assert plan is not None
    known = replace(problem, known=(plan,))
    other = replace(known, objective=LoadObjective(problem.workload))
    assert known.groundwork is other.groundwork is problem.groundwork
    assert packed(other.groundwork) is plan


def test_a_problem_holds_nothing_that_is_derived_but_the_groundwork() -> None:
    problem = example_problem(example_workload(3), world_size=4)
    assert problem.options is problem.groundwork.options
    assert problem.capacity == max(problem.rooms) == problem.groundwork.capacity
    names = {field.name for field in fields(ShardingProblem)}
    assert set(vars(problem)) == names == {"groundwork", "objective", "known"}


def test_options_are_computed_once() -> None:
    made = ground()
    assert made.options is made.options
    assert set(made.options) == {"table_0", "table_1", "table_2"}
    assert made.arrays is made.arrays
    assert made.num_options == len(made.arrays.flat)


def test_what_functions_make_is_made_once_for_each_of_them() -> None:
    asked: list[str] = []

    def first(of: Groundwork) -> int:
        asked.append("first")
        return len(of.options)

    def nothing(_: Groundwork) -> None:
        asked.append("nothing")

    made = ground()
    assert [made.once(first), made.once(nothing), made.once(first)] == [3, None, 3]
    assert made.once(nothing) is None
    assert asked == ["first", "nothing"]
    assert ground().once(first) == 3
    assert asked == ["first", "nothing", "first"]


def test_shards_hold_what_the_arrays_say() -> None:
    made = ground()
    for number, option in enumerate(made.arrays.flat):
        table = made.workload.tables[made.arrays.codes.table[number]]
        sizes = made.option_bytes(table, option)
        assert sizes is made.option_bytes(table, option)
        assert len(sizes) == option.num_shards(made.topology)
        assert max(size.total for size in sizes) == made.arrays.largest_bytes[number]
