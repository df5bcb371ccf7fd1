"""Numbers that stand for kinds of work and process groups in flat arrays."""

from costmodel.step.step_operations import ProcessGroup
from costmodel.step.template import WorkKind

CONSTANT, STREAM, FORWARD, BACKWARD, EXCHANGE, ISSUE, GIVEN, LINEAR, WEIGHT_GRADIENT = range(9)
"""Kinds of work."""
ALONE, WORLD, INTRA_NODE, CROSS_NODE = range(4)
"""Process groups."""
NONE, SOME, ONLY = range(3)
"""Whether none, some or all of the features of a duration are of the whole plan."""
NO_GROUP = 1 << 62
"""Bit of durations that depend on no sharding group."""

KINDS = {
    WorkKind.CONSTANT: CONSTANT,
    WorkKind.STREAM: STREAM,
    WorkKind.FORWARD: FORWARD,
    WorkKind.BACKWARD: BACKWARD,
    WorkKind.EXCHANGE: EXCHANGE,
    WorkKind.ISSUE: ISSUE,
    WorkKind.GIVEN: GIVEN,
    WorkKind.LINEAR: LINEAR,
    WorkKind.WEIGHT_GRADIENT: WEIGHT_GRADIENT,
}
GROUPS = {
    None: ALONE,
    ProcessGroup.WORLD: WORLD,
    ProcessGroup.INTRA_NODE: INTRA_NODE,
    ProcessGroup.CROSS_NODE: CROSS_NODE,
    ProcessGroup.JOB: WORLD,
    ProcessGroup.REPLICAS: ALONE,
}
"""All ranks here are in the job's group, and each is alone in its group of replicas."""
