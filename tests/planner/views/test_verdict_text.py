from dataclasses import replace
from typing import Any

from costmodel.base.units import MS, US
from costmodel.domain.plan import ShardingPlan
from costmodel.step.graph import Stage
from planner import plan
from planner.examples import example_workload
from planner.planned.report import Report, SearchReport
from planner.planned.verdict import CutSmall, Fuller, NarrowBlocks, PlanVerdict, Rival, Turn
from planner.search.search import SearchEnd
from planner.views.verdict_text import tied_sentence, verdict_sentences

PLAN = ShardingPlan(tables=(), world_size=2, local_world_size=2)
TURN = Turn(assumption="host", factor=2 / 3, probability=0.055, value=9 * US)
RIVAL = Rival(
    sharder="torchrec_port",
    types="5 row_wise",
    plan=PLAN,
    longer=0.034,
    probability_slower=0.83,
    turn=TURN,
)


def verdict(rival: Rival | None = RIVAL, **changes: object) -> PlanVerdict:
    values: dict[str, Any] = {"host_time": 0.1 * MS, "free_batch": None, "rival": rival}
    return PlanVerdict(**{**values, **changes})


def said(rival: Rival | None = RIVAL, **changes: object) -> str:
    return " ".join(verdict_sentences(verdict(rival, **changes), 1 * MS))


def test_narrow_blocks_have_a_reason() -> None:
    narrow = NarrowBlocks(tables=("hist", "item", "shop"), longer=0.023)
    assert said(narrow=narrow).endswith(
        " Blocks of fewer than 32 columns, of hist and 2 other tables: the step is predicted to be "
        "2.3% longer with twice as wide ones."
    )
    assert "even lookups and memory" in said(narrow=replace(narrow, longer=-0.01))
    assert "do not fit" in said(narrow=NarrowBlocks(tables=("hist",), longer=None))


def test_small_tables_that_are_cut_have_a_reason() -> None:
    small = CutSmall(tables=("a", "b"), longer=0.053)
    assert said(small=small).endswith(
        " 2 tables below 16.0 MiB are cut, to share the collectives of the others: were they "
        "whole, or all tables, the step would be at least 5.3% longer by the models."
    )
    alike = CutSmall(tables=("a",), longer=0.0)
    assert "1 table below 16.0 MiB is cut: whole, the step would be no longer" in said(small=alike)
    assert "do not fit" in said(small=replace(small, longer=None))


def test_a_fuller_plan_says_what_it_gains() -> None:
    assert said(fuller=Fuller(is_chosen=True)).endswith(
        " No plan was found that leaves less of every rank's memory free (`--headroom`): "
        "this one is of a search with all of it."
    )
    cut = SearchReport(
        sharder="annealing", requested="auto", seed=0, status="limit", evaluated=1, time=1.0,
        end=SearchEnd.LIMIT, headroom=0.1,
    )  # fmt: skip
    told = verdict(fuller=Fuller(is_chosen=True))
    assert "No plan was found in the time given that leaves 10% of" in " ".join(
        verdict_sentences(told, 1 * MS, cut)
    )
    of_group = said(fuller=Fuller(is_chosen=True, of_group=True))
    assert "No plan for such a group was found that leaves" in of_group
    gained = Fuller(is_chosen=True, longer=0.12, probability_slower=0.97)
    assert said(fuller=gained).endswith(
        "memory free (`--headroom`) is expected to take 12.0% longer: slower with P 97%."
    )
    assert said(fuller=replace(gained, is_chosen=False, probability_slower=0.7)).endswith(
        "is expected to take 12.0% longer than the best fuller one, with P 70%, which is not sure: "
        "`--headroom 0%` takes that."
    )


def test_one_rival_is_named_with_its_odds_and_what_would_turn_it() -> None:
    assert said() == (
        "TorchRec's plan (5 row_wise) is expected to take 3.4% longer: slower with P 83%. "
        "It would win if host operations took 6.00 us instead of the assumed 9.00 us: P 6%."
    )
    lookups = Turn(assumption="lookups", factor=2.5, probability=0.001, value=None)
    assert said(replace(RIVAL, sharder="naive", turn=lookups)) == (
        "The plan of whole tables in turn (5 row_wise) is expected to take 3.4% longer: slower "
        "with P 83%. It would win if lookups took 2.50× as long as assumed: P <1%."
    )


def test_an_assumption_that_turns_the_choice_at_once_is_hardly_off() -> None:
    host = replace(TURN, factor=1.0001)
    assert "host operations took hardly more than the assumed 9.00 us: P" in said(
        replace(RIVAL, turn=host)
    )
    lookups = Turn(assumption="lookups", factor=0.999, probability=0.5, value=None)
    assert "lookups took hardly less than assumed: P" in said(replace(RIVAL, turn=lookups))


def test_where_no_assumption_turns_the_choice_none_is_named() -> None:
    assert "win" not in said(replace(RIVAL, turn=None))


def test_where_sharding_hardly_matters_the_first_words_say_so() -> None:
    alike = replace(RIVAL, longer=0.004, turn=None)
    assert said(alike, host_time=0.72 * MS, free_batch=16384) == (
        "Sharding hardly matters: TorchRec's plan (5 row_wise) takes as long, within 0.4%; "
        "all wait for the host to launch in 720 us of 1.00 ms; batches up to 16,384 take at most "
        "10% longer."
    )
    assert "hardly" not in said(replace(RIVAL, longer=0.011))


def test_a_simple_plan_that_is_chosen_or_faster_than_others_is_said_to_be() -> None:
    alike = replace(RIVAL, sharder="naive", longer=0.0, turn=None)
    slower = " ".join(verdict_sentences(verdict(alike), 1 * MS, matters=True))
    assert slower.startswith("A simpler plan will do: the plan of whole tables in turn")
    found = SearchReport(
        sharder="naive", requested="auto", seed=0, status="done", evaluated=9, time=1.0
    )
    assert " ".join(verdict_sentences(verdict(alike), 1 * MS, found)) == (
        "This is the plan of whole tables in turn (5 row_wise): no other plan that was found is "
        "faster."
    )


def test_without_a_rival_nothing_is_claimed() -> None:
    cut = SearchReport(
        sharder="naive",
        requested="auto",
        seed=0,
        status="limit",
        evaluated=1,
        time=2.0,
        end=SearchEnd.LIMIT,
    )
    assert said(None) == "Not searched enough to tell how sure this choice is."
    (said_of_cut,) = verdict_sentences(verdict(None), 1 * MS, cut)
    assert said_of_cut.endswith(" is: the limit ended the search after 1 plan.")
    pressed = replace(cut, end=SearchEnd.INTERRUPTED)
    (said_of_pressed,) = verdict_sentences(verdict(None), 1 * MS, pressed)
    assert said_of_pressed.endswith(" is: an interrupt ended the search after 1 plan.")


def sharders(*step_times: float, host: float = 0.0) -> list[Report]:
    report = plan(example_workload(4), gpus=2, sharder="naive", baseline="none").report
    return [
        replace(
            report,
            confidence=replace(report.confidence, step_time=each),
            breakdown={Stage.HOST: host},
        )
        for each in step_times
    ]


def test_sharders_that_tie_are_counted() -> None:
    tied = sharders(4.3 * MS, 4.304 * MS, 4.34 * MS, 5 * MS, host=3.1 * MS)
    assert tied_sentence(tied) == (
        "3 of 4 sharders within 0.9%: all wait for the host to launch in 3.10 ms of 4.30 ms."
    )
    assert tied_sentence(tied[:2]).startswith(
        "Sharding hardly matters: 2 of 2 sharders within 0.1%"
    )


def test_a_sharder_that_is_ahead_ties_with_none() -> None:
    assert not tied_sentence(sharders(4 * MS, 4.1 * MS))
