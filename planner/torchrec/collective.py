"""Planning in a process group: all ranks agree on the question, and rank 0 plans for all."""

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist
from torchrec.distributed.planner.types import PlannerError, Topology

from planner.torchrec.error_types import INPUT_VALIDATION
from planner.torchrec.model_reading import ModelTables

Question = tuple[tuple[str, Any], ...]
"""(name, value) of everything that is planned for, to be compared between ranks."""
Answer = TypeVar("Answer")
"""A plan, with data about it."""


def shared_question(
    topology: Topology, local_batch_size: int, read: Callable[[], ModelTables | None]
) -> Question:
    """Return what all ranks must agree on; a model that cannot be read is refused on all."""
    try:
        model = read()
        tables: object = tuple(
            (table.name, table.num_embeddings, table.embedding_dim)
            for table in (model.tables if model else ())
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, other ranks must not hang
        tables = f"{type(error).__name__}: {error}"
    return (
        ("the world size", topology.world_size),
        ("the local world size", topology.local_world_size),
        ("the batch size", local_batch_size),
        ("the list of tables", tables),
    )


def plan_together(
    group: dist.ProcessGroup, question: Question, make_plan: Callable[[], Answer]
) -> Answer:
    """Return rank 0's plan on every rank of the group; if it fails, fail on every rank.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        Rank 0 found no plan, or the ranks do not ask for the same one.

    """
    questions: list[Any] = [None] * group.size()
    dist.all_gather_object(questions, question, group=group)
    _check_agreement(questions)
    answer: list[Any] = [None]
    if group.rank() == 0:
        answer = [_plan_or_error(make_plan)]
    dist.broadcast_object_list(answer, group_src=0, group=group)
    if isinstance(answer[0], PlannerError):
        raise answer[0]
    made: Answer = answer[0]
    return made


def _plan_or_error(make_plan: Callable[[], Answer]) -> Answer | PlannerError:
    """Return a plan, or its error instead of raising: other ranks wait for either."""
    try:
        plan = make_plan()
        pickle.dumps(plan)
    except PlannerError as error:
        return PlannerError(str(error), error.error_type)
    except Exception as error:  # noqa: BLE001 - whatever it is, other ranks must not hang
        return PlannerError(f"rank 0 failed to plan: {type(error).__name__}: {error}")
    return plan


def _check_agreement(questions: Sequence[Question]) -> None:
    first = dict(questions[0])
    for rank, question in enumerate(questions):
        for name, value in question:
            if first.get(name) != value:
                raise PlannerError(
                    f"the ranks do not plan the same thing: {name} is {_short(first.get(name))} "
                    f"on rank 0, {_short(value)} on rank {rank}",
                    INPUT_VALIDATION,
                )


def _short(value: object) -> str:
    text = str(value)
    return text if isinstance(value, str) or len(text) <= 80 else f"{text[:77]}..."
