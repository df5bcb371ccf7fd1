"""Algorithm 1 of the paper, as printed: one walk over the operators of every rank.

A simpler model than the execution graph, kept for comparison. Every rank has two streams, and
host overheads T1..T5 per operator. It knows no other streams, no order of launches, and no host
that waits for the device: such waits are in the overheads it is given.

References
----------
Lin et al., arXiv 2404.12674, Algorithm 1. The overheads: arXiv 2201.07821, Fig. 4.

"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from costmodel.base.units import US, Seconds

_KERNEL_GAP: Seconds = 1 * US
"""Seconds between two queued kernels of a stream, as printed in Algorithm 1."""


class Stream(StrEnum):
    """The two streams of Algorithm 1."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A kernel that an operator launches."""

    stream: Stream
    seconds: Seconds
    """T_k; of a collective, from when all ranks have joined."""
    call_time: Seconds = 0.0
    """T4: the launch call."""
    gap: Seconds = 0.0
    """T5: host time until the operator's next launch."""
    collective: int | None = None
    """Number of the collective; the launches of one number, one on each member rank, are one
    collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a rank, in program order."""

    name: str
    before: Seconds = 0.0
    """T1: host time since the previous operator."""
    lead: Seconds = 0.0
    """T2: until the first launch."""
    tail: Seconds = 0.0
    """T3: after the last launch; T5 of operators that launch nothing."""
    launches: tuple[Launch, ...] = ()
    waits_for_collective: bool = False
    """Whether it depends on the latest collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """When the host and both streams of one rank have finished each operator."""

    ends: Sequence[Seconds]
    """(host, stream, stream) in seconds, after every operator."""

    @property
    def end(self) -> Seconds:
        """Return when everything has ended, in seconds."""
        return self.ends[-1] if self.ends else 0.0


def algorithm1(ranks: Sequence[Sequence[Operator]]) -> tuple[RankTimes, ...]:
    """Time the operators of all ranks.

    Per launch on stream s, with the host at ``cpu``:

        T_s = max(T_s + 1 us, cpu + T4 / 2) + T_k

    A collective first brings both streams of its rank to the later of them, and ends on all
    ranks with the last; an operator that depends on it brings both streams together again.

    Raises
    ------
    ValueError
        If the ranks' collectives do not come in one order.

    """
    walks = [_walk(operators) for operators in ranks]
    times: list[RankTimes | None] = [None] * len(ranks)
    arrived: dict[int, tuple[int, Seconds]] = {}
    size = _group_sizes(ranks)
    running = [(rank, None) for rank in range(len(ranks))]
    answers: list[tuple[int, Seconds | None]] = list(running)
    while answers:
        for rank, answer in answers:
            try:
                arrived[rank] = walks[rank].send(answer)
            except StopIteration as done:
                times[rank] = done.value
                arrived.pop(rank, None)
        answers = _completed(arrived, size)
    if arrived:
        raise ValueError(f"collectives of {len(arrived)} ranks never complete")
    return tuple(each for each in times if each is not None)


def _group_sizes(ranks: Sequence[Sequence[Operator]]) -> dict[int, int]:
    """Return how many launches every collective has on all ranks, by its number."""
    sizes: dict[int, int] = {}
    for operators in ranks:
        for operator in operators:
            for launch in operator.launches:
                if launch.collective is not None:
                    sizes[launch.collective] = sizes.get(launch.collective, 0) + 1
    return sizes


def _completed(
    arrived: dict[int, tuple[int, Seconds]], size: dict[int, int]
) -> list[tuple[int, Seconds | None]]:
    """Return the ranks that have joined a complete collective, each with its end."""
    members: dict[int, list[int]] = {}
    for rank, (number, _) in arrived.items():
        members.setdefault(number, []).append(rank)
    return [
        (rank, max(arrived[member][1] for member in group))
        for number, group in members.items()
        if len(group) == size[number]
        for rank in group
    ]


def _walk(
    operators: Sequence[Operator],
) -> Generator[tuple[int, Seconds], Seconds | None, RankTimes]:
    """Walk one rank: yield (collective, own end), receive the end common to all ranks."""
    cpu = 0.0
    streams = dict.fromkeys(Stream, 0.0)
    ends = []
    for operator in operators:
        cpu += operator.before + (operator.lead if operator.launches else 0.0)
        collective = any(launch.collective is not None for launch in operator.launches)
        if operator.waits_for_collective or collective:
            streams = dict.fromkeys(Stream, max(streams.values()))
        for launch in operator.launches:
            begin = max(streams[launch.stream] + _KERNEL_GAP, cpu + launch.call_time / 2)
            end = begin + launch.seconds
            if launch.collective is not None:
                end = (yield launch.collective, end) or end
            streams[launch.stream] = end
            cpu += launch.call_time + launch.gap
        cpu += operator.tail
        ends.append(max(cpu, *streams.values()))
    return RankTimes(ends=ends)
