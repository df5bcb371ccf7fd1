"""Kinds of TorchRec's errors that not all of its versions have."""

from torchrec.distributed.planner.types import PlannerErrorType

INPUT_VALIDATION = getattr(PlannerErrorType, "INPUT_VALIDATION", PlannerErrorType.OTHER)
"""What was asked for is wrong, whatever plans there are."""
