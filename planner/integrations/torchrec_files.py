"""Plan files of ``planner plan`` for TorchRec models, and of TorchRec models for ``planner``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torchrec.distributed.types import ShardingPlan as TorchRecPlan

from costmodel.errors import PlanMismatchError
from costmodel.workload import Workload
from planner.integrations.torchrec_model import ModelReading, ModelTables, read_model
from planner.integrations.torchrec_plans import to_torchrec
from planner.io.files import write_text
from planner.io.plans import PlanFile, dump_plan_file, load_plan_file, plan_text

if TYPE_CHECKING:
    from planner.integrations.torchrec_planner import Solution


def load_torchrec_plan(
    path: str | Path, module: nn.Module, sharders: Sequence[Any], compute_device: str = "cuda"
) -> TorchRecPlan:
    """Return a plan file's plan for a model whose tables have the workload's names and shapes.

    Raises
    ------
    PlanMismatchError
        The file's tables are not the model's.

    """
    file = load_plan_file(path)
    workload = file.workload
    reading = ModelReading(
        compute_device=compute_device, local_batch_size=workload.local_batch_size
    )
    model = read_model(module, sharders, reading)
    _check_same_tables(workload, model)
    return to_torchrec(file.plan, model.homes, compute_device=compute_device)


def save_plan(path: str | Path, solution: "Solution") -> None:
    """Write what ``IterationTimePlanner`` found, for ``planner explain`` and ``simulate``."""
    file = PlanFile(
        plan=solution.plan,
        workload=solution.workload,
        hardware=solution.topology.hardware.name,
        sharder=solution.sharder,
        step_time=solution.step_time,
    )
    write_text(path, plan_text(dump_plan_file(file)))


def _check_same_tables(workload: Workload, model: ModelTables) -> None:
    planned = {t.name: (t.num_embeddings, t.embedding_dim) for t in workload.tables}
    there = {t.name: (t.num_embeddings, t.embedding_dim) for t in model.tables}
    for name in sorted(planned.keys() | there.keys()):
        if planned.get(name) != there.get(name):
            raise PlanMismatchError(
                f"table `{name}` is {_shape(there.get(name))} in the model, "
                f"{_shape(planned.get(name))} in the plan file"
            )


def _shape(rows_columns: tuple[int, int] | None) -> str:
    return "absent" if rows_columns is None else f"{rows_columns[0]} x {rows_columns[1]}"
