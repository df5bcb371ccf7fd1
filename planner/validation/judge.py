"""Comparing predictions with measurements: errors, order, and whether the pick was good."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, sqrt
from statistics import fmean, median, stdev

import numpy as np

from costmodel.base.units import Seconds
from planner.validation.job import RankResult
from planner.validation.phases import StepPrediction

CLOSE_ENOUGH = 1.10
"""Largest multiple of the fastest plan's step at which the paper counts a pick as a success (Lin et
al., section IV-B)."""
MOST_FOREIGN = 0.05
"""Rounds in which other processes used more of the busiest rank's core are left out where others
remain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One plan's prediction and measurements."""

    name: str
    prediction: StepPrediction
    rounds: tuple[Seconds, ...]
    """Median step of every round, in seconds."""
    foreign: tuple[float, ...]
    """Share of the busiest rank's core that other processes used, by round."""
    cpu: tuple[Seconds, ...] = ()
    """Processor time of a step, by rank."""
    phases: tuple[Mapping[str, Seconds], ...] = ()
    """Seconds of a step by phase, of every rank, with the profiler attached."""

    @property
    def predicted(self) -> Seconds:
        """The step that is compared: of a plan that is validated, the expected one."""
        return self.prediction.step_time

    @property
    def is_within(self) -> bool | None:
        """Whether the measured step lies in the interval; None: the prediction has none."""
        interval = self.prediction.interval
        return None if interval is None else interval[0] <= self.measured <= interval[1]

    @property
    def quiet(self) -> tuple[int, ...]:
        """Numbers of the rounds that count: the undisturbed ones, or all if there are none."""
        calm = tuple(i for i, share in enumerate(self.foreign) if share <= MOST_FOREIGN)
        return calm or tuple(range(len(self.rounds)))

    @property
    def disturbed(self) -> bool:
        """Whether other processes disturbed rounds that count."""
        return any(self.foreign[i] > MOST_FOREIGN for i in self.quiet)

    @property
    def measured(self) -> Seconds:
        """Median step of the rounds that count, in seconds."""
        return median(self.rounds[i] for i in self.quiet)

    @property
    def noise(self) -> Seconds:
        """Half the distance between the quartiles of the rounds that count, in seconds."""
        low, high = np.quantile([self.rounds[i] for i in self.quiet], (0.25, 0.75))
        return float(high - low) / 2

    @property
    def error(self) -> float:
        """Relative error of the prediction, signed."""
        return self.predicted / self.measured - 1.0


def outcome(name: str, prediction: StepPrediction, ranks: Sequence[RankResult]) -> Outcome:
    """Return a plan's outcome from all ranks' measurements: the slowest rank's steps count.

    Other processes' share is that on the core of the busiest rank: an idle rank leaves its core to
    others.
    """
    count = len(ranks[0].blocks)
    rounds, foreign = [], []
    for turn in range(count):
        blocks = [rank.blocks[turn] for rank in ranks]
        slowest = [max(steps) for steps in zip(*(block.wall for block in blocks), strict=True)]
        rounds.append(median(slowest))
        foreign.append(max(blocks, key=lambda block: sum(block.cpu)).foreign)
    return Outcome(
        name=name,
        prediction=prediction,
        rounds=tuple(rounds),
        foreign=tuple(foreign),
        cpu=tuple(median(t for block in rank.blocks for t in block.cpu) for rank in ranks),
        phases=tuple(rank.phases for rank in ranks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How good predictions of several plans of one workload were."""

    geomean_error: float
    """Geometric mean of predicted over measured or its inverse, whichever is above 1, minus 1."""
    cpu_error: float
    """The same of the ranks' processor time."""
    tau: float
    """Kendall's tau over all pairs."""
    told_apart: int
    """Number of pairs whose order the measurements are sure of (95%)."""
    tau_told_apart: float
    """Kendall's tau over these pairs."""
    picked: str
    """The plan predicted to be fastest."""
    fastest: str
    """The plan measured to be fastest."""
    regret: float
    """Share by which the picked plan's step is longer than the fastest one's."""
    open_pairs: tuple[tuple[str, str], ...]
    """Pairs whose order is not sure."""

    @property
    def success(self) -> bool:
        """Whether the picked plan's step is within 10% of the fastest one's."""
        return 1.0 + self.regret <= CLOSE_ENOUGH


def judge(outcomes: Sequence[Outcome]) -> Verdict:
    """Return the verdict on predicted steps of plans measured in the same rounds."""
    predicted = {each.name: each.predicted for each in outcomes}
    sure = [pair for pair in combinations(outcomes, 2) if are_told_apart(*pair)]
    kept = {(a.name, b.name) for a, b in sure}
    every = list(combinations(outcomes, 2))
    picked = min(outcomes, key=lambda each: each.predicted)
    fastest = min(outcomes, key=lambda each: each.measured)
    return Verdict(
        geomean_error=geomean_error(outcomes),
        cpu_error=cpu_error(outcomes),
        tau=kendall_tau(every, predicted.__getitem__),
        told_apart=len(sure),
        tau_told_apart=kendall_tau(sure, predicted.__getitem__),
        picked=picked.name,
        fastest=fastest.name,
        regret=picked.measured / fastest.measured - 1.0,
        open_pairs=tuple((a.name, b.name) for a, b in every if (a.name, b.name) not in kept),
    )


def geomean_error(outcomes: Sequence[Outcome]) -> float:
    """Return the geometric mean of the factors by which predictions are off, minus 1."""
    return exp(fmean(abs(log(each.predicted / each.measured)) for each in outcomes)) - 1.0


def cpu_error(outcomes: Sequence[Outcome]) -> float:
    """Return the same of the ranks' processor time; 0 if it was not measured.

    Processor time does not depend much on other processes. It has gloo's threads in it, and no
    waits for other ranks.
    """
    pairs = [
        pair for each in outcomes for pair in zip(each.prediction.busy, each.cpu, strict=False)
    ]
    return exp(fmean(abs(log(ours / theirs)) for ours, theirs in pairs)) - 1.0 if pairs else 0.0


def kendall_tau(pairs: Sequence[tuple[Outcome, Outcome]], score: Callable[[str], float]) -> float:
    """Return concordant less discordant pairs over all of them; ties count 0, no pairs give 1.

    Pairs may be some of all, as in ``scipy.stats.kendalltau`` they may not.
    """
    if not pairs:
        return 1.0
    agreed = 0
    for a, b in pairs:
        product = (score(a.name) - score(b.name)) * (a.measured - b.measured)
        agreed += (product > 0) - (product < 0)
    return agreed / len(pairs)


def are_told_apart(a: Outcome, b: Outcome) -> bool:
    """Return whether the measurements are sure which plan is faster.

    It is a paired t test at 95% over the rounds that count for both: plans take turns, so that a
    disturbance of a whole round cancels.
    """
    from scipy.special import stdtrit

    both = sorted(set(a.quiet) & set(b.quiet))
    if len(both) < 2:
        return False
    differences = [a.rounds[i] - b.rounds[i] for i in both]
    quantile = float(stdtrit(len(both) - 1, 0.975))
    return abs(fmean(differences)) > quantile * stdev(differences) / sqrt(len(both))


def success_rate(outcomes: Sequence[Outcome], size: int, score: Callable[[str], float]) -> float:
    """Return how often the pick is a success, over all choices of ``size`` plans.

    As in the paper, the plan whose name has the smallest score is picked; that is a success if it
    takes at most ``CLOSE_ENOUGH`` times as long as the fastest of those plans.
    """
    wins = total = 0
    for some in combinations(outcomes, min(size, len(outcomes))):
        picked = min(some, key=lambda each: score(each.name))
        fastest = min(each.measured for each in some)
        wins += picked.measured <= CLOSE_ENOUGH * fastest
        total += 1
    return wins / total
