from dataclasses import replace

from costmodel.base.units import MS, US
from costmodel.step.graph import Stage
from planner import plan
from planner.examples import example_workload
from planner.planned.report import Report, SearchReport
from planner.planned.verdict import NarrowBlocks, PlanVerdict, Turn
from planner.search.search import SearchEnd
from planner.views.verdict_text import tied_sentence, turn_sentence, verdict_sentences


def verdict(**changes: object) -> PlanVerdict:
    values: dict[str, object] = {
        "num_candidates": 5,
        "num_equal": 1,
        "spread": 0.2,
        "simplest_longer": 0.0,
        "within_bound": 0.3,
        "host_time": 0.1 * MS,
        "runner_up": "lp",
        "runner_up_types": "5 row_wise",
        "probability_faster": 0.83,
        "ahead": 0.034,
        "free_batch": None,
        "turn": None,
        "num_rivals": 0,
    }
    return PlanVerdict(**{**values, **changes})  # type: ignore[arg-type]


def said(**changes: object) -> str:
    return " ".join(verdict_sentences(verdict(**changes), 1 * MS))


def test_narrow_blocks_have_a_reason() -> None:
    narrow = NarrowBlocks(tables=("hist", "item", "shop"), longer=0.023)
    assert said(narrow=narrow).endswith(
        " Blocks of fewer than 32 columns, of hist and 2 other tables: the step is predicted to be "
        "2.3% longer with twice as wide ones."
    )
    assert "even load or room" in said(narrow=replace(narrow, longer=-0.01))
    assert "do not fit" in said(narrow=NarrowBlocks(tables=("hist",), longer=None), spread=0.001)


TURN = Turn(
    assumption="host",
    factor=2 / 3,
    deviations=1.6,
    value=9 * US,
    rival="5 row_wise",
    rival_ahead=False,
)


def test_a_plan_that_is_faster_says_with_what_odds() -> None:
    assert said() == "Faster than the runner-up (5 row_wise, of lp), with P 83%."


def test_open_odds_are_not_called_faster() -> None:
    assert said(probability_faster=0.47) == (
        "Expected to be 3.4% shorter than the runner-up (5 row_wise, of lp); which is faster is "
        "open, P 47%."
    )


def test_equal_plans_say_why_this_one() -> None:
    text = said(num_equal=3)
    assert text.startswith("3 of 5 plans cannot be told apart; of these this one has the most even")


def test_where_sharding_hardly_matters_the_first_words_say_so() -> None:
    text = said(spread=0.001, host_time=0.72 * MS, free_batch=16384, turn=TURN)
    assert text == (
        "Sharding hardly matters: 5 plans within 0.1%; the host launches for 720 us of 1.00 ms; "
        "batches up to 16,384 are nearly free."
    )
    assert "hardly" not in said(spread=0.001, simplest_longer=0.7)
    simplest = said(within_bound=0.0, spread=0.02)
    assert simplest.startswith(
        "The simplest plan is as fast as any can be, within 0.1% of the bound"
    )


def test_where_no_assumption_turns_the_choice_that_is_said() -> None:
    assert said(num_rivals=2).endswith(
        " No plan found of other sharding types wins were the host, lookups or collectives alone "
        "up to 4× faster or slower."
    )
    assert "No plan" not in said(num_rivals=2, spread=0.001)


def test_the_assumption_that_decides_is_named_with_its_value() -> None:
    assert turn_sentence(TURN) == (
        "Host operations would have to take 6.00 us instead of 9.00 us for 5 row_wise to win: "
        "well possible, so calibrate."
    )
    lookups = Turn(
        assumption="lookups",
        factor=2.5,
        deviations=3.0,
        value=None,
        rival="5 row_wise",
        rival_ahead=True,
    )
    assert turn_sentence(lookups) == (
        "Lookups would have to take 2.50× as long for this plan to win against 5 row_wise without "
        "errors: hardly likely."
    )
    assert turn_sentence(replace(lookups, factor=0.996)) == (
        "A plan of 5 row_wise takes as long: lookups 1% off turn the choice, so calibrate."
    )


def sharders(*step_times: float, host: float = 0.0) -> list[Report]:
    report = plan(example_workload(4), gpus=2, sharder="naive", baseline="none").report
    return [
        replace(report, confidence=None, step_time=each, breakdown={Stage.HOST: host})
        for each in step_times
    ]


def test_sharders_that_tie_are_counted() -> None:
    tied = sharders(4.3 * MS, 4.304 * MS, 4.34 * MS, 5 * MS, host=3.1 * MS)
    assert tied_sentence(tied) == (
        "3 of 4 sharders within 0.9%: the host launches for 3.10 ms of 4.30 ms."
    )
    assert tied_sentence(tied[:2]).startswith(
        "Sharding hardly matters: 2 of 2 sharders within 0.1%"
    )


def test_a_sharder_that_is_ahead_ties_with_none() -> None:
    assert not tied_sentence(sharders(4 * MS, 4.1 * MS))


def test_one_plan_alone_does_not_say_that_sharding_hardly_matters() -> None:
    alone = {"num_candidates": 1, "spread": 0.0, "runner_up": None, "probability_faster": None}
    assert said(**alone) == "No other plan was weighed against this one."
    cut = SearchReport(
        sharder="naive",
        requested="auto",
        seed=0,
        status="limit",
        evaluated=1,
        time=2.0,
        end=SearchEnd.LIMIT,
    )
    assert [*verdict_sentences(verdict(**alone), 1 * MS, cut)] == [
        "No other plan was weighed against this one: the limit ended the search after 1 plan."
    ]
    quiet = replace(cut, end=SearchEnd.QUIET)
    assert [*verdict_sentences(verdict(**alone), 1 * MS, quiet)] == [said(**alone)]
    assert said(**alone, within_bound=0.005).startswith("The simplest plan is as fast as any")
