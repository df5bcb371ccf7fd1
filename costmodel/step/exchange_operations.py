"""Stream kernels and collectives that input distribution and output exchange share."""

from dataclasses import replace

from costmodel.domain.hardware import CollectiveOp
from costmodel.step.builder import StepBuilder, Wait
from costmodel.step.graph import Role, Stage
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.issue import ONE_OP, Issue
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.template import Exchange, GroupFormulas, Linear

STAGE_OF = {
    CollectiveOp.ALL_TO_ALL: Stage.ALL_TO_ALL,
    CollectiveOp.ALL_REDUCE: Stage.ALL_REDUCE,
    CollectiveOp.REDUCE_SCATTER: Stage.REDUCE_SCATTER,
    CollectiveOp.ALL_GATHER: Stage.ALL_GATHER,
}


def label(group: GroupFormulas) -> str:
    """Return a group's name in timelines: its sharding type, and module unless pooled."""
    kind = "" if group.key.pooled else "unpooled "
    return f"{kind}{'weighted ' if group.key.weighted else ''}{group.key.sharding_type}"


def add_collective(  # noqa: PLR0913 -- three have defaults
    builder: StepBuilder,
    name: str,
    op: CollectiveOp,
    size: Linear,
    *,
    group: ProcessGroup = ProcessGroup.WORLD,
    stage: Stage | None = None,
    after: tuple[Wait, ...] = (),
    optional: bool = False,
) -> int:
    """Add a collective after the current stream and ``after``; return its number.

    With ``optional``, only in plans that have bytes for it.
    """
    seconds = builder.exchange_time(op, size, group, optional=optional)
    return builder.collective(
        name, stage or STAGE_OF[op], seconds, group=group,
        after=after, num_bytes=size, exchange=Exchange(op, builder.ranks(group)), basis=None,
    )  # fmt: skip


def add_stream(  # noqa: PLR0913 -- all but three have defaults
    builder: StepBuilder,
    name: str,
    num_bytes: Linear | float,
    *,
    stage: Stage,
    issue: Issue = ONE_OP,
    after: tuple[Wait, ...] = (),
    efficiency: float = 1.0,
    role: Role = Role.OTHER,
    where: tuple[tuple[GroupKey, KernelKey], ...] = (),
    least: int = 1,
) -> int:
    """Add a kernel bound by a share of the bandwidth; none if there are no bytes.

    It takes place only on ranks on which ``least`` of the lookup kernels ``where`` have work.
    """
    seconds = builder.stream_time(num_bytes / efficiency)
    if where:
        seconds = replace(seconds, where=where, least=least)
    return builder.kernel(
        name, stage, seconds, num_bytes=num_bytes, issue=issue, after=after, role=role
    )  # fmt: skip
