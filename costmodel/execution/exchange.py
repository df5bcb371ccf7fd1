"""What input distribution and output exchange share: a stream kernel, a collective, a name."""

from costmodel.execution.graph import Stage
from costmodel.execution.issue import ONE_OP, Issue
from costmodel.execution.loads import GroupLoad
from costmodel.execution.program import Amount, ProcessGroup, ProgramBuilder
from costmodel.hardware import CollectiveOp

STAGE_OF = {
    CollectiveOp.ALL_TO_ALL: Stage.ALL_TO_ALL,
    CollectiveOp.ALL_REDUCE: Stage.ALL_REDUCE,
    CollectiveOp.REDUCE_SCATTER: Stage.REDUCE_SCATTER,
    CollectiveOp.ALL_GATHER: Stage.ALL_GATHER,
}


def label(group: GroupLoad) -> str:
    """Name a group in timelines: its sharding type, and its module where that is not pooled."""
    kind = "" if group.key.pooled else "unpooled "
    return f"{kind}{'weighted ' if group.key.weighted else ''}{group.key.sharding_type}"


def add_collective(
    builder: ProgramBuilder,
    name: str,
    op: CollectiveOp,
    size: Amount,
    *,
    group: ProcessGroup = ProcessGroup.WORLD,
    stage: Stage | None = None,
    after: tuple[int, ...],
) -> int:
    """Start a collective; ``after`` names the stream's last operation, which it waits for."""
    bound_by, source = builder.exchange_bound(op, size, group)
    return builder.collective(
        name, stage or STAGE_OF[op], builder.exchange_time(op, size, group), group=group,
        after=after, num_bytes=size, bound_by=bound_by, source=source,
    )  # fmt: skip


def add_stream(  # noqa: PLR0913 -- all but three have defaults
    builder: ProgramBuilder,
    name: str,
    num_bytes: Amount,
    *,
    stage: Stage,
    stream: str = "compute",
    issue: Issue = ONE_OP,
    after: tuple[int, ...] = (),
    after_previous: tuple[str, ...] = (),
    efficiency: float = 1.0,
) -> int:
    """Add a kernel bound by a share of the bandwidth; nothing where there are no bytes."""
    seconds = builder.stream_time(num_bytes / efficiency)
    return builder.kernel(
        name, stage, seconds, stream=stream, num_bytes=num_bytes,
        num_ops=issue.num_ops, num_launches=issue.num_launches,
        after=after, after_previous=after_previous,
    )  # fmt: skip
