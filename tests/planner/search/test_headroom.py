"""A share of memory that plans leave free, unless none fits."""

import pytest

from costmodel.base.errors import InfeasibleError
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.memory.rank_memory import fits, rank_rooms
from planner.examples import example_problem
from planner.search.headroom import leaving, run_with_headroom, with_less_hbm
from planner.search.search import Search
from sharders.problem.sharding_problem import ShardingProblem


def problem(fill: float) -> ShardingProblem:
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=10**6, embedding_dim=64, pooling_factor=2)
        for i in range(6)
    )
    return example_problem(Workload(tables=tables, local_batch_size=256), world_size=2, fill=fill)


def test_ranks_have_so_much_less_for_tables() -> None:
    whole = problem(0.5)
    rooms = rank_rooms(whole.workload, whole.topology)
    assert leaving(whole, 0.25).rooms == pytest.approx([0.75 * room for room in rooms])
    assert leaving(whole, 0.0) is whole
    less = with_less_hbm(whole.topology, (0.0, 100.0))
    assert rank_rooms(whole.workload, less) == pytest.approx((rooms[0], rooms[1] - 100))


@pytest.mark.parametrize(("fill", "leaves"), [(0.8, True), (0.95, False)])
def test_a_plan_leaves_it_if_any_does(fill: float, *, leaves: bool) -> None:
    whole, search = problem(fill), Search(max_plans=100)
    roomy = leaving(whole, 0.1)
    solved, attempts = run_with_headroom(("annealing",), whole, search, fuller=False)
    assert (solved is not whole) is leaves
    assert fits(whole.workload, roomy.topology, attempts[0].found) is leaves


def test_where_no_plan_fits_the_error_is_of_all_memory() -> None:
    whole = problem(1.5)
    with pytest.raises(InfeasibleError) as failed:
        run_with_headroom(("annealing",), whole, Search(max_plans=100), fuller=True)
    with pytest.raises(InfeasibleError) as plain:
        run_with_headroom(("annealing",), whole, Search(max_plans=100, headroom=0), fuller=True)
    assert str(failed.value) == str(plain.value)


def test_torchrec_s_planner_leaves_what_it_does_anyway() -> None:
    whole = problem(0.5)
    solved, _ = run_with_headroom(("torchrec_port",), whole, Search(max_plans=50), fuller=False)
    assert solved is whole


@pytest.mark.parametrize(("fill", "goes_on"), [(0.3, False), (0.8, True)])
def test_tight_memory_is_searched_for_fuller_plans_too(fill: float, *, goes_on: bool) -> None:
    whole, search = problem(fill), Search(max_plans=100, gap=0)
    _, attempts = run_with_headroom(("annealing",), whole, search, fuller=True)
    assert len(attempts) == 1 + goes_on


def test_a_search_from_fuller_plans_has_all_memory() -> None:
    whole = problem(0.95)
    _, attempts = run_with_headroom(("annealing",), whole, Search(max_plans=50), fuller=False)
    known = ShardingProblem.of(whole.workload, whole.topology, (attempts[0].found,))
    assert leaving(known, 0.1) is known
