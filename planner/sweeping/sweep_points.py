"""Points of a sweep, compared by throughput, cost and step time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from costmodel.base.units import Bytes, Seconds
from planner.planned.shown import shown
from planner.planned.verdict import SAME_STEP
from planner.show.format import count

if TYPE_CHECKING:
    from planner.pages.charts import Chart

HOUR: Seconds = 3600.0
MILLION = 1e6
WAY = "-way-"
"""In keys, between that of a point that no plan fits and the number of a way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One machine, number of GPUs and batch, and the best plan found for them."""

    hardware: str
    """The profile's name, or the path it was read from."""
    world_size: int
    num_nodes: int
    local_batch_size: int
    gradient_accumulation_steps: int = 1
    """Batches of a step."""
    replica_group: str = ""
    """Ranks of groups that each hold all tables (TorchRec's 2D sparse parallelism), as asked for,
    or ``auto``; empty: one group of all."""
    group_size: int | None = None
    """The plan's; None: one group of all, or no plan."""
    change: str = ""
    """How the workload was changed, as no plan of the one asked for fits; empty: it was not."""
    setting: str = ""
    """The change as it is written in a workload file, and for which tables."""
    price: float | None = None
    """Price of one GPU-hour in any currency; None: cost is counted in GPU-hours."""
    step_time: Seconds | None = None
    """Expected step, as ``plan`` quotes it; None: there is no plan."""
    interval: tuple[Seconds, Seconds] | None = None
    """Seconds between which the step lies with 90% probability."""
    gap: float | None = None
    """Share by which the predicted step is above the bound on every plan of this point."""
    peak_memory_bytes: Bytes | None = None
    usable_bytes: Bytes | None = None
    measured: str = ""
    """Which kinds of kernels were measured on a machine of this kind, as text."""
    unmeasured_share: float | None = None
    """Share of the plan's critical path that rests on no measurement."""
    sharder: str | None = None
    reason: str | None = None
    """Why there is no plan."""
    notes: tuple[str, ...] = ()
    """Warnings about the plan."""
    key: str
    """Digest of everything that the plan depends on: a point with the same key is not planned
    again."""
    plan_file: str | None = None
    """Name of the plan's file in the sweep's folder."""

    @property
    def task(self) -> str:
        """The key of the point that was asked for: this one, or the one that no plan fits."""
        return self.key.partition(WAY)[0]

    @property
    def global_batch_size(self) -> int:
        """Number of samples of one step, on all GPUs together."""
        return self.local_batch_size * self.gradient_accumulation_steps * self.world_size

    @property
    def samples_per_second(self) -> float:
        """Samples per second of all GPUs together; 0 if there is no plan."""
        return self.global_batch_size / self.step_time if self.step_time else 0.0

    @property
    def least_samples_per_second(self) -> float:
        """Samples per second at the slow end of the 90% interval."""
        return self.global_batch_size / self.interval[1] if self.interval else 0.0

    @property
    def hourly_cost(self) -> float:
        """Cost of all GPUs per hour; without a price, their number."""
        return self.world_size * (1.0 if self.price is None else self.price)

    @property
    def cost_per_million_samples(self) -> float | None:
        """Cost of training a million samples; without a price, GPU-hours."""
        if self.step_time is None:
            return None
        return self.hourly_cost / HOUR * MILLION / self.samples_per_second

    def beats(self, other: "SweepPoint") -> bool:
        """Return whether this point is as good in throughput, cost and step, and better in one.

        What differs by less than the models can tell (``SAME_STEP``) is as good.
        """
        worse = [a / b - 1 for a, b in zip(_criteria(self), _criteria(other), strict=True)]
        return max(worse) <= SAME_STEP and min(worse) < -SAME_STEP


def _criteria(point: SweepPoint) -> tuple[float, float, float]:
    """Return seconds a sample, cost and step time of a point: each is better if smaller."""
    cost, step_time = point.cost_per_million_samples, point.step_time
    if cost is None or step_time is None:
        raise ValueError("a point without a plan is compared with none")
    return 1 / point.samples_per_second, cost, step_time


def by_note(points: Iterable[SweepPoint]) -> dict[str, list[SweepPoint]]:
    """Return the points of each warning."""
    found: dict[str, list[SweepPoint]] = {}
    for point in points:
        for note in point.notes:
            found.setdefault(note, []).append(point)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sweep:
    """All points of a sweep, in the order of its grid: hardware, GPUs, batch."""

    workload: str
    num_tables: int
    points: tuple[SweepPoint, ...]

    def __repr__(self) -> str:
        return (
            f"<Sweep of {self.workload or 'a workload'}: {count(len(self.points), 'point')}, "
            f"{len(self.feasible)} with a plan, {len(self.front)} on the front>"
        )

    @property
    def is_priced(self) -> bool:
        """Whether cost is money instead of GPU-hours."""
        return all(point.price is not None for point in self.points)

    @property
    def feasible(self) -> tuple[SweepPoint, ...]:
        """Points that have a plan."""
        return tuple(point for point in self.points if point.step_time is not None)

    @property
    def front(self) -> tuple[SweepPoint, ...]:
        """The Pareto front: points that no other beats in throughput, cost per sample and step.

        Cheaper points come first: of a ring of points that each beat the next, one stays.
        """
        front: list[SweepPoint] = []
        for point in sorted(self.feasible, key=lambda p: (p.hourly_cost, p.step_time or 0.0)):
            if not any(other.beats(point) for other in front):
                front = [other for other in front if not point.beats(other)] + [point]
        return tuple(point for point in self.feasible if point in front)

    def cheapest(self, samples_per_second: float, *, safe: bool = False) -> SweepPoint | None:
        """Return the point of the lowest hourly cost that trains so many samples per second.

        By the expected step, or, to be ``safe``, at the slow end of its 90% interval; of equal ones
        the fastest; None: no point does. Without prices, the point of the fewest GPUs.
        """

        def rate(point: SweepPoint) -> float:
            return point.least_samples_per_second if safe else point.samples_per_second

        enough = [each for each in self.feasible if rate(each) >= samples_per_second]
        return min(enough, key=lambda each: (each.hourly_cost, -rate(each)), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data in SI units."""
        return shown(dict, "planner.sweeping.sweep_data:sweep_data", self)

    def to_csv(self) -> str:
        """Return a table with a line for every point, and the names of ``to_dict`` as header."""
        return shown(str, "planner.sweeping.sweep_data:sweep_csv", self)

    def to_dataframe(self) -> Any:  # noqa: ANN401 - a pandas.DataFrame, where pandas is installed
        """Return one row for every point as a ``pandas.DataFrame``."""
        return shown(object, "planner.pages.frames:dataframe", self.to_dict()["points"])

    def to_html(self) -> str:
        """Return a page that needs no network: the front, and a table to sort and filter."""
        return shown(str, "planner.sweeping.sweep_page:sweep_page", self)

    def plot_front(self) -> "Chart":
        """Return a chart of points by cost and throughput, those on the front connected."""
        front = shown(dict, "planner.sweeping.sweep_page:front_spec", self)
        return shown(object, "planner.pages.charts:chart", front)

    def plot_scaling(self) -> "Chart":
        """Return a chart of throughput over GPUs, a line for every machine and batch."""
        scaling = shown(dict, "planner.sweeping.sweep_page:scaling_spec", self)
        return shown(object, "planner.pages.charts:chart", scaling)

    def _repr_html_(self) -> str:
        return shown(str, "planner.sweeping.sweep_page:sweep_table", self)
