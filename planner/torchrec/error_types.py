"""Kinds of TorchRec's errors that not all of its versions have."""

from torchrec.distributed.planner.types import PlannerErrorType

INPUT_VALIDATION = getattr(PlannerErrorType, "INPUT_VALIDATION", PlannerErrorType.OTHER)
"""What was asked for is wrong, whatever plans there are."""
INVALID_RANK_ASSIGNMENT = getattr(PlannerErrorType, "INVALID_RANK_ASSIGNMENT", INPUT_VALIDATION)
"""A shard is on a rank that there is not."""
