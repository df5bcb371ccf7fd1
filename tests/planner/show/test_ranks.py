from dataclasses import replace
from itertools import pairwise

import pytest
from machines import machine
from plans import plan, table, workload
from timelines import two_ranks

from costmodel.base.errors import InputError
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.timeline import Timeline
from planner.show.ranks import MOST_RANKS, parse_ranks, rank_list, shown_ranks

TABLE_WISE = ShardingType.TABLE_WISE
ALL = tuple(range(16))


def sixteen(**tables: tuple[float, int]) -> Timeline:
    """The step of tables on two nodes of 8, by name (ids per sample, rank), each on one rank."""
    work = workload(*(table(name, dim=128, ids=ids) for name, (ids, _) in tables.items()))
    topology = Topology(hardware=machine(), world_size=16, local_world_size=8)
    how = {name: (TABLE_WISE, (rank,)) for name, (_, rank) in tables.items()}
    return plan_timeline(work, topology, plan(work, topology, how))


def uneven() -> Timeline:
    """Every rank has a table, the larger the higher its number: all are of kinds of their own."""
    return sixteen(**{f"t{rank}": (10.0 + rank, rank) for rank in range(16)})


def test_ranks_are_listed_ranged_or_all() -> None:
    assert rank_list((3,), 4) == "3"
    assert rank_list((2, 0), 4) == "0, 2"
    assert rank_list((5, 0, 2, 1, 3, 5), 8) == "0-3, 5"
    assert rank_list(range(4), 4) == "all"
    assert rank_list(range(8, 16), 16) == "8-15"


def test_ranks_are_read_from_text() -> None:
    assert list(parse_ranks("0-2,5")) == [0, 1, 2, 5]
    assert list(parse_ranks(" 7 , 3-3")) == [7, 3]
    assert parse_ranks("all") == "all"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a rank is missing"),
        ("0,,1", "a rank is missing"),
        ("x", "`x` is not a rank"),
        ("-1", "`-1` is not a rank"),
        ("1-", "`1-` is not a rank"),
        ("5-2", "`5-2` ends before it begins; write `2-5`"),
        ("٣", "is not a rank"),
        ("9" * 5000, "is not a rank"),
    ],
)
def test_what_names_no_ranks_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        list(parse_ranks(text))
    assert len(str(refused.value)) < 100


def test_all_ranks_of_few_are_shown_and_nothing_is_said() -> None:
    shown = shown_ranks(two_ranks())
    assert (shown.ranks, shown.text, shown.sentence) == ((0, 1), "", "")


def test_ranks_asked_for_are_shown_once_and_in_order() -> None:
    shown = shown_ranks(uneven(), [9, 3, 9])
    assert (shown.ranks, shown.text) == ((3, 9), "2 of 16 ranks")
    every = shown_ranks(uneven(), "all")
    assert (every.ranks, every.text) == (ALL, "")


def test_a_rank_that_is_not_there_is_refused_without_looking_at_those_after_it() -> None:
    with pytest.raises(InputError, match="--ranks: there is no rank 16: there are 0-15"):
        shown_ranks(uneven(), parse_ranks("14-999999999"))


def test_ranks_that_do_the_same_are_one_kind() -> None:
    timeline = sixteen(one=(50.0, 3), other=(20.0, 12))
    shown = shown_ranks(timeline)
    # rank 3, rank 12, and one of the other 14, which hold nothing
    assert {3, 12} < set(shown.ranks)
    assert len(shown.ranks) == 3
    assert shown.text.startswith("3 of 16 ranks: one of each kind")
    (empty,) = set(shown.ranks) - {3, 12}
    nodes, size = timeline.graph.nodes, 16
    for index in range(0, len(nodes), size):
        ends = {round(timeline.ends[index + rank] * 1e9) for rank in ALL if rank not in (3, 12)}
        assert ends == {round(timeline.ends[index + empty] * 1e9)}


def test_of_more_kinds_those_that_the_step_waits_for_the_busiest_and_the_idlest() -> None:
    timeline = uneven()
    shown = shown_ranks(timeline)
    assert len(shown.ranks) == MOST_RANKS
    assert shown.text == (
        "8 of 16 ranks: those longest on the critical path, the busiest and the idlest"
    )
    seconds = dict.fromkeys(ALL, 0.0)
    for segment in timeline.critical_path():
        seconds[timeline.graph.nodes[segment.node].rank] += segment.seconds
    idle = timeline.idle_times
    expected = {max(ALL, key=seconds.__getitem__), int(idle.argmin()), int(idle.argmax())}
    assert expected <= set(shown.ranks)
    assert all(first < second for first, second in pairwise(shown.ranks))


def test_a_rank_on_the_critical_path_is_shown_though_it_is_neither_busy_nor_idle() -> None:
    timeline = uneven()
    idle = timeline.idle_times
    middle = sorted(ALL, key=lambda rank: float(idle[rank]))[8]
    assert middle not in shown_ranks(timeline).ranks
    # the same times, but the step's last node is the middle rank's: the path ends there
    last = max(i for i in timeline.graph.nodes_of([middle]) if timeline.binding[i] is not None)
    ends = list(timeline.ends)
    ends[last] = max(ends) + 1e-6
    later = replace(timeline, ends=ends, step_ends=[*timeline.step_ends[:-1], ends[last]])
    assert middle in shown_ranks(later).ranks
