"""A sweep as text: its table, the front, and the cheapest point that is fast enough."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from rich.text import Text

from planner.show.format import count, duration, percent, rate, significant
from planner.show.layout import rows_text, wrapped
from planner.sweeping.sweep_data import MARK, point_columns
from planner.sweeping.sweep_points import Sweep, SweepPoint, by_note
from planner.verbs.grouping import AUTO
from planner.views.report_text import notes_text

_GUESSED = 0.5
"""Smallest share of a step without a measurement that is said beside a choice."""


def sweep_text(
    sweep: Sweep, width: int, target: float | None = None, *, safe: bool = False
) -> Iterator[Text]:
    """Yield a line for every point, then remarks.

    ``target`` is the samples per second that the cheapest machine must reach, at the slow end, too,
    to be ``safe``.
    """
    name = f"{sweep.workload}: " if sweep.workload else ""
    yield Text(f"{name}{count(sweep.num_tables, 'table')} · {count(len(sweep.points), 'point')}")
    yield from notes_text(warnings(sweep), width)
    yield Text()
    yield from rows_text(point_columns(sweep), sweep.points, width=width, indent=0)
    yield Text()
    yield from _notes(sweep, width)
    if target is not None:
        yield from wrapped(cheapest_text(sweep, target, safe=safe), width, indent=0)


def cost_text(point: SweepPoint) -> str:
    """Return the cost of a million samples as text; empty if there is no plan."""
    cost = point.cost_per_million_samples
    return "" if cost is None else significant(cost)


def place(point: SweepPoint) -> str:
    """Return a point's name."""
    changed = f", {point.change}" if point.change else ""
    groups = {"": "", AUTO: ", any groups"}.get(
        point.replica_group, f", groups of {point.replica_group}"
    )
    size = f"{point.world_size:,} × {point.hardware}"
    return f"{size}, {point.local_batch_size:,} samples each{groups}{changed}"


_NAMES: tuple[Callable[[SweepPoint], str], ...] = (
    lambda _: "all plans",
    lambda point: point.hardware,
    lambda point: f"{point.world_size:,} × {point.hardware}",
    place,
)
"""Functions that name points, from the widest name to that of a single point."""


def warnings(sweep: Sweep) -> list[str]:
    """Return every warning once, with the names of its points."""
    return [
        f"{'; '.join(_places(points, sweep))}: {note}"
        for note, points in by_note(sweep.points).items()
    ]


def _places(points: Sequence[SweepPoint], sweep: Sweep) -> Iterable[str]:
    """Return the widest names for some points that include no other point with a plan."""
    others = set(sweep.feasible) - set(points)
    ways = [(name, {name(point) for point in others}) for name in _NAMES]
    names = (
        next(name(point) for name, taken in ways if name(point) not in taken) for point in points
    )
    return dict.fromkeys(names)


def _notes(sweep: Sweep, width: int) -> Iterator[Text]:
    less = "a lower cost per sample" if sweep.is_priced else "fewer GPU-hours per sample"
    if sweep.feasible:
        text = (
            f"{MARK} No other point has more samples/s, {less} or a shorter step without "
            "being worse in another of these, by more than 1%."
        )
        yield from wrapped(text, width, indent=0)
        guessed = [point for point in sweep.front if (point.unmeasured_share or 0.0) >= _GUESSED]
        if guessed:
            names = ", ".join(dict.fromkeys(point.hardware for point in guessed))
            least = min(point.unmeasured_share or 0.0 for point in guessed)
            said = (
                f"Of those marked {MARK}, at least {percent(least)} of the step on {names} rests "
            )
            yield from wrapped(f"{said}on no measurement: calibrate it first.", width, indent=0)
    without = [point for point in sweep.points if point.reason is not None]
    if without:
        why = f"No plan for {place(without[0])}: {without[0].reason}."
        if without[1:]:
            why += f" {count(len(without) - 1, 'more point')} without a plan: --json says why."
        yield from wrapped(why, width, indent=0)
    settings = dict.fromkeys((each.change, each.setting) for each in sweep.front if each.change)
    for change, setting in settings:
        yield from wrapped(f"With {change}: write {setting}.", width, indent=0)


def cheapest_text(sweep: Sweep, target: float, *, safe: bool = False) -> str:
    """Return the cheapest point that trains so many samples per second, or how far off all are."""
    point = sweep.cheapest(target, safe=safe)
    surely = " at the slow end" if safe else ""
    asked = f"{rate(target)} samples/s{surely}"
    if point is None:
        if not sweep.feasible:
            return f"Nothing trains {asked}: no point has a plan."
        of = attrgetter("least_samples_per_second" if safe else "samples_per_second")
        best = max(sweep.feasible, key=of)
        return f"Nothing trains {asked}; the most is {rate(of(best))}, {place(best)}."
    least = point.least_samples_per_second
    hour = f"{significant(point.hourly_cost)} an hour" if sweep.is_priced else "the fewest GPUs"
    sure = "still" if least >= target else "only"
    how = duration(point.step_time or 0.0)
    return (
        f"Cheapest for {asked}: {place(point)} ({hour}): {rate(point.samples_per_second)} "
        f"at {how} a step, {sure} {rate(least)} at the slow end of the 90% interval."
        f"{_unmeasured(point)}{_fewer(sweep, point, target)}"
    )


def _unmeasured(point: SweepPoint) -> str:
    """Return what of a point's step rests on no measurement, if that is much; else empty."""
    share = point.unmeasured_share or 0.0
    return f" {percent(share)} of it rests on no measurement." if share >= _GUESSED else ""


def _fewer(sweep: Sweep, point: SweepPoint, target: float) -> str:
    """Return that fewer GPUs may do, if the fewest that were asked for train twice as much."""
    asked = [each.world_size for each in sweep.points if each.hardware == point.hardware]
    half = point.world_size // 2
    if not half or point.world_size > min(asked) or point.least_samples_per_second < 2 * target:
        return ""
    return f" Fewer may do: try `--gpus {half}`."
