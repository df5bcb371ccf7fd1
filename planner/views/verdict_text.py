"""How sure a choice is, in one or two sentences."""

from collections.abc import Iterator, Sequence

from costmodel.base.units import Seconds
from costmodel.step.graph import Stage
from costmodel.uncertainty.sensitivity import FACTORS
from planner.decision.narrow import NARROW
from planner.planned.report import Report, SearchReport
from planner.planned.verdict import LIKELY, SAME_STEP, NarrowBlocks, PlanVerdict, Turn
from planner.search.search import SearchEnd
from planner.show.format import count, duration, odds, percent_fine

_HOST_DECIDES = 0.3
"""Smallest share of the critical path at which the host is said to decide."""
_FASTER = 0.6
"""Smallest probability at which a plan is said to be faster."""
_MOST_OFF = float(FACTORS[-1])
_LEAST_SHARE = 0.001
"""Shares are said with one decimal."""
_NOUNS = {"lookups": "lookups", "collectives": "collectives"}


def choice_sentences(report: Report) -> list[str]:
    """Return the sentences on the choice of a plan; none if it was not chosen among several."""
    if report.verdict is None:
        return []
    return list(verdict_sentences(report.verdict, report.step_time, report.search))


def verdict_sentences(
    verdict: PlanVerdict, step_time: Seconds, search: SearchReport | None = None
) -> Iterator[str]:
    """Yield sentences on what a choice rests on, the most important first."""
    yield _first(verdict, search) + _why(verdict, step_time) + "."
    if verdict.turn is not None and not verdict.hardly_matters:
        yield turn_sentence(verdict.turn)
    elif verdict.num_rivals and not verdict.hardly_matters:
        yield (
            "No plan found of other sharding types wins were the host, lookups or collectives "
            f"alone up to {_MOST_OFF:g}× faster or slower."
        )
    if verdict.narrow is not None:
        yield _narrow_sentence(verdict.narrow)


def _narrow_sentence(narrow: NarrowBlocks) -> str:
    """Return which tables are cut into narrow blocks, and how much that gains."""
    others = len(narrow.tables) - 1
    named = narrow.tables[0] + (f" and {count(others, 'other table')}" if others else "")
    cut = f"Blocks of fewer than {NARROW} columns, of {named}: "
    if narrow.longer is None:
        return f"{cut}wider ones are not allowed, or do not fit."
    if narrow.longer < _LEAST_SHARE:
        kept = "so even load or room for twice the batch decided"
        return f"{cut}the step is predicted to be no longer with twice as wide ones, {kept}."
    longer = percent_fine(narrow.longer)
    return f"{cut}the step is predicted to be {longer} longer with twice as wide ones."


def _first(verdict: PlanVerdict, search: SearchReport | None) -> str:
    """Return the first sentence: how many plans are as good, or how far the simplest one is."""
    found = count(verdict.num_candidates, "plan")
    if verdict.hardly_matters:
        alone = verdict.num_candidates == 1
        if verdict.within_bound is not None and (alone or verdict.within_bound <= verdict.spread):
            share = percent_fine(max(_LEAST_SHARE, verdict.within_bound))
            return f"The simplest plan is as fast as any can be, within {share} of the bound"
        share = percent_fine(max(_LEAST_SHARE, verdict.spread))
        return f"Sharding hardly matters: {found} within {share}"
    if verdict.num_equal > 1:
        return (
            f"{verdict.num_equal} of {found} cannot be told apart; of these this one has the most "
            "even load and the fewest shards"
        )
    if verdict.runner_up is None or verdict.probability_faster is None:
        return "No other plan was weighed against this one" + _ended(search)
    if verdict.probability_faster < _FASTER:
        return (
            f"Expected to be {percent_fine(max(0.0, verdict.ahead))} shorter than {_other(verdict)}"
            f"; which is faster is open, P {odds(verdict.probability_faster)}"
        )
    return f"Faster than {_other(verdict)}, with P {odds(verdict.probability_faster)}"


def _ended(search: SearchReport | None) -> str:
    """Return that a search ran out of time, if it did; else empty."""
    if search is None or search.end != SearchEnd.LIMIT:
        return ""
    return f": the limit ended the search after {count(search.evaluated, 'plan')}"


def _other(verdict: PlanVerdict) -> str:
    """Return how sentences call the runner-up: its sharding types and sharder."""
    return f"the runner-up ({verdict.runner_up_types}, of {verdict.runner_up})"


def _why(verdict: PlanVerdict, step_time: Seconds) -> str:
    """Return what to append to a sentence: the host's share, and batches that are nearly free."""
    parts = [host_text(verdict.host_time, step_time)]
    if verdict.free_batch is not None:
        parts.append(f"batches up to {verdict.free_batch:,} are nearly free")
    return "".join(f"; {part}" for part in parts if part)


def host_text(host_time: Seconds, step_time: Seconds) -> str:
    """Return how long the host launches, if that is much of the step; else empty."""
    if host_time < _HOST_DECIDES * step_time:
        return ""
    return f"the host launches for {duration(host_time)} of {duration(step_time)}"


def tied_sentence(reports: Sequence[Report]) -> str:
    """Return how many sharders found plans as good as the best one; empty if none did.

    The best plan comes first in ``reports``.
    """
    best = reports[0].expected
    tied = [report for report in reports if report.expected <= best * (1 + SAME_STEP)]
    if len(tied) < 2:
        return ""
    share = percent_fine(max(_LEAST_SHARE, tied[-1].expected / best - 1))
    said = f"{len(tied)} of {count(len(reports), 'sharder')} within {share}"
    if len(tied) == len(reports):
        said = f"Sharding hardly matters: {said}"
    host = host_text(reports[0].breakdown.get(Stage.HOST, 0.0), reports[0].step_time)
    return f"{said}: {host}." if host else f"{said}."


def turn_sentence(turn: Turn) -> str:
    """Return how far an assumption must be off to turn the choice, and how likely that is."""
    then = f"for {turn.rival} to win"
    if abs(turn.factor - 1.0) < SAME_STEP:
        cause = _NOUNS.get(turn.assumption, "host operations")
        return (
            f"A plan of {turn.rival} takes as long: {cause} 1% off turn the choice, so calibrate."
        )
    if turn.rival_ahead:
        then = f"for this plan to win against {turn.rival} without errors"
    if turn.value is not None:
        now, needed = duration(turn.value), duration(turn.factor * turn.value)
        said = f"Host operations would have to take {needed} instead of {now} {then}"
    else:
        noun = _NOUNS[turn.assumption].capitalize()
        said = f"{noun} would have to take {turn.factor:.2f}× as long {then}"
    unlikely = turn.deviations > LIKELY
    return f"{said}: {'hardly likely' if unlikely else 'well possible, so calibrate'}."
