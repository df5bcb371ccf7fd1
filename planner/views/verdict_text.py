"""How sure a choice is, in one or two sentences."""

from collections.abc import Iterator, Sequence

from costmodel.base.units import Seconds
from costmodel.step.graph import Stage
from costmodel.uncertainty.sensitivity import FACTORS
from planner.decision.narrow import NARROW, SMALL
from planner.planned.report import Report, SearchReport
from planner.planned.verdict import (
    SAME_STEP,
    CutSmall,
    Fuller,
    NarrowBlocks,
    PlanVerdict,
    Rival,
    Turn,
)
from planner.search.search import CUT_SHORT, SearchEnd
from planner.show.format import count, duration, memory, odds, percent, percent_fine

_HOST_DECIDES = 0.3
"""Smallest share of the critical path at which the host is said to decide."""
_MOST_OFF = float(FACTORS[-1])
_LEAST_SHARE = 0.001
"""Shares are said with one decimal."""
_NOUNS = {"lookups": "lookups", "collectives": "collectives"}
_WAYS = {
    "naive": "the plan of whole tables in turn",
    "lookup_greedy": "the plan of whole tables by lookups",
    "torchrec_port": "TorchRec's plan",
}
"""What plans are called by their sharders."""


def choice_sentences(report: Report) -> list[str]:
    """Return the sentences on the choice of a plan; none if it was not chosen among several."""
    if report.verdict is None:
        return []
    return list(
        verdict_sentences(
            report.verdict, report.step_time, report.search, matters=is_baseline_slower(report)
        )
    )


def is_baseline_slower(report: Report) -> bool:
    """Return whether the plan compared with takes longer, so that sharding matters."""
    return report.speedup is not None and report.speedup > 1 + SAME_STEP


def verdict_sentences(
    verdict: PlanVerdict,
    step_time: Seconds,
    search: SearchReport | None = None,
    *,
    matters: bool = False,
) -> Iterator[str]:
    """Yield sentences on what a choice rests on, the most important first.

    ``matters``: another plan takes longer, so that it is not said that sharding hardly matters.
    """
    rival = verdict.rival
    if rival is None:
        yield f"Not searched enough to tell how sure this choice is{_ended(search)}."
    else:
        first, *others = rival_sentences(rival, search, matters=matters)
        yield first.removesuffix(".") + _why(verdict, step_time) + "."
        yield from others
    if verdict.fuller is not None:
        yield _fuller_sentence(verdict.fuller, search)
    if verdict.narrow is not None:
        yield _narrow_sentence(verdict.narrow)
    if verdict.small is not None:
        yield _small_sentence(verdict.small)


def rival_sentences(
    rival: Rival, search: SearchReport | None = None, *, matters: bool = False
) -> Iterator[str]:
    """Yield how surely a rival loses, and what would turn it."""
    way = f"{_WAYS.get(rival.sharder, f'the plan of {rival.sharder}')} ({rival.types})"
    if rival.is_as_good and search is not None and search.sharder == rival.sharder:
        yield f"This is {way}: no other plan that was found is faster."
        return
    if rival.is_as_good:
        share = percent_fine(max(_LEAST_SHARE, rival.longer))
        so = "A simpler plan will do" if matters else "Sharding hardly matters"
        yield f"{so}: {way} takes as long, within {share}."
        return
    longer, sure = percent_fine(rival.longer), odds(rival.probability_slower)
    said = f"{way} is expected to take {longer} longer: slower with P {sure}."
    yield said[0].upper() + said[1:]
    if rival.turn is not None:
        yield turn_sentence(rival.turn)


def _fuller_sentence(fuller: Fuller, search: SearchReport | None) -> str:
    """Return what a fuller rank gains or would gain, or that nothing else fits."""
    asked = None if search is None else search.headroom
    share = "less" if asked is None else percent(asked)
    if fuller.longer is None or fuller.probability_slower is None:
        cut = search is not None and search.end in CUT_SHORT
        none = "No plan for such a group was found" if fuller.of_group else "No plan was found"
        none += " in the time given" if cut else ""
        return (
            f"{none} that leaves {share} of every rank's memory free (`--headroom`): "
            "this one is of a search with all of it."
        )
    longer, sure = percent_fine(fuller.longer), odds(fuller.probability_slower)
    if fuller.is_chosen:
        return (
            f"The best plan found that leaves {share} of every rank's memory free (`--headroom`) "
            f"is expected to take {longer} longer: slower with P {sure}."
        )
    return (
        f"This plan leaves {share} of every rank's memory free and is expected to take {longer} "
        f"longer than the best fuller one, with P {sure}, which is not sure: `--headroom 0%` takes "
        "that."
    )


def _small_sentence(small: CutSmall) -> str:
    """Return why small tables are cut: what it would cost to place them whole."""
    tables = count(len(small.tables), "table")
    are = "is" if len(small.tables) == 1 else "are"
    cut = f"{tables} below {memory(SMALL)} {are} cut"
    if small.longer is None:
        return f"{cut}: whole ones are not allowed, or do not fit."
    if small.longer < _LEAST_SHARE:
        return f"{cut}: whole, the step would be no longer by the models."
    longer = percent_fine(small.longer)
    return (
        f"{cut}, to share the collectives of the others: were they whole, or all tables, the step "
        f"would be at least {longer} longer by the models."
    )


def _narrow_sentence(narrow: NarrowBlocks) -> str:
    """Return which tables are cut into narrow blocks, and how much that gains."""
    others = len(narrow.tables) - 1
    named = narrow.tables[0] + (f" and {count(others, 'other table')}" if others else "")
    cut = f"Blocks of fewer than {NARROW} columns, of {named}: "
    if narrow.longer is None:
        return f"{cut}wider ones are not allowed, or do not fit."
    if narrow.longer < _LEAST_SHARE:
        kept = "so even lookups and memory, or room for twice the batch, decided"
        return f"{cut}the step is predicted to be no longer with twice as wide ones, {kept}."
    longer = percent_fine(narrow.longer)
    return f"{cut}the step is predicted to be {longer} longer with twice as wide ones."


def _ended(search: SearchReport | None) -> str:
    """Return what ended a search that would have gone on; else empty."""
    if search is None or search.end not in CUT_SHORT:
        return ""
    what = "an interrupt" if search.end == SearchEnd.INTERRUPTED else "the limit"
    return f": {what} ended the search after {count(search.evaluated, 'plan')}"


def _why(verdict: PlanVerdict, step_time: Seconds) -> str:
    """Return what to append: the host's share, and batches that hardly take longer."""
    parts = [host_text(verdict.host_time, step_time)]
    if verdict.free_batch is not None:
        parts.append(f"batches up to {verdict.free_batch:,} take at most 10% longer")
    return "".join(f"; {part}" for part in parts if part)


def host_text(host_time: Seconds, step_time: Seconds) -> str:
    """Return how long a step waits for the host's launches, if that is much of it; else empty."""
    if host_time < _HOST_DECIDES * step_time:
        return ""
    return f"all wait for the host to launch in {duration(host_time)} of {duration(step_time)}"


def tied_sentence(reports: Sequence[Report]) -> str:
    """Return how many sharders found plans as good as the best one; empty if none did.

    The best plan comes first in ``reports``.
    """
    best = reports[0].step_time
    tied = [report for report in reports if report.step_time <= best * (1 + SAME_STEP)]
    if len(tied) < 2:
        return ""
    share = percent_fine(max(_LEAST_SHARE, tied[-1].step_time / best - 1))
    said = f"{len(tied)} of {count(len(reports), 'sharder')} within {share}"
    if len(tied) == len(reports):
        said = f"Sharding hardly matters: {said}"
    host = host_text(reports[0].breakdown.get(Stage.HOST, 0.0), reports[0].step_time)
    return f"{said}: {host}." if host else f"{said}."


def turn_sentence(turn: Turn) -> str:
    """Return how far an assumption must be off to turn the choice, and how likely that is."""
    little = "more" if turn.factor > 1 else "less"
    if turn.value is not None:
        now, needed = duration(turn.value), duration(turn.factor * turn.value)
        instead = f"{needed} instead of" if needed != now else f"hardly {little} than"
        said = f"host operations took {instead} the assumed {now}"
    else:
        times = f"{turn.factor:.2f}"
        long = f"{times}× as long as" if times != "1.00" else f"hardly {little} than"
        said = f"{_NOUNS[turn.assumption]} took {long} assumed"
    return f"It would win if {said}: P {odds(turn.probability)}."
