"""Plans chosen with all that a dense part runs, and with its linear layers alone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from bench.five_models.training import COLLECTIONS
from bench.kept import SEED
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import MS
from costmodel.domain.workload import DenseModel, Pooling, Workload
from planner.files.profiles import load_profile
from planner.operators.reading import read_operators
from planner.planned.planned import Planned
from planner.planned.verdict import kinds_text
from planner.torchrec import read_factory
from planner.torchrec.dense_reading import read_layers
from planner.torchrec.dense_training import DenseTraining
from planner.verbs.planning import plan
from planner.verbs.topologies import make_topology
from sharders.problem.sharding_problem import ShardingProblem

MACHINES: Mapping[str, int] = {"h100-sxm": 8, "cpu-gloo": 2}
"""Profiles, and how many ranks."""
LOCAL_BATCH_SIZES = (512, 4096, 16384)
MEAN_LENGTH, LONGEST = 50.0, 200.0
"""Ids of a history."""
MOST_PLANS = 5000


def choices(spec: str, model: nn.Module) -> dict[str, Any]:
    """Return how a model is read, and what is chosen on each machine at each batch size."""
    read, _ = read_factory(spec, dense_optimizer="sgd", precision="fp32", say=lambda _: None)
    tables = tuple(
        replace(each, pooling_factor=MEAN_LENGTH * each.num_features, longest_bag=LONGEST)
        if each.pooling is Pooling.NONE
        else each
        for each in read.tables
    )
    training = DenseTraining.told("sgd", "fp32")
    linear = [each for each in model.modules() if isinstance(each, nn.Linear)]
    paths = [path for path, each in model.named_modules() if isinstance(each, COLLECTIONS)]
    alone = read_layers(model, paths, tables, read.local_batch_size, training).model
    listed = training.applied(DenseModel(operators=read_operators(model)), linear)
    whole, layers = (replace(read, tables=tables, dense=each) for each in (listed, alone))
    return {
        "planned_with": "operators" if read.dense.operators else "layers",
        "machines": {
            f"{ranks} x {machine}": {
                str(size): _choice(
                    replace(whole, local_batch_size=size),
                    replace(layers, local_batch_size=size),
                    machine,
                )
                for size in LOCAL_BATCH_SIZES
            }
            for machine, ranks in MACHINES.items()
        },
    }


def _choice(whole: Workload, layers: Workload, machine: str) -> dict[str, Any]:
    """Return the predicted steps of the plans that are chosen with both dense parts, in ms."""
    other = _planned(layers, machine)
    own = _planned(whole, machine)
    if isinstance(own, str) or isinstance(other, str):
        return {"operators": _step(own), "layers": _step(other)}
    topology = make_topology(load_profile(machine), MACHINES[machine])
    step_time = ShardingProblem.of(whole, topology).objective.step_time
    steps = [step_time(each.plan) for each in (own, other)]
    return {
        "operators": _step(own),
        "layers": _step(other),
        "layers_plan": round(steps[1] / MS, 3),
        "gain_percent": round(100 * (1 - steps[0] / steps[1]), 2),
        "plans": [kinds_text(each.plan) for each in (own, other)],
    }


def _planned(workload: Workload, machine: str) -> Planned | str:
    try:
        return plan(
            workload, gpus=MACHINES[machine], hardware=machine, max_plans=MOST_PLANS, seed=SEED
        )
    except InfeasibleError as error:
        return error.message


def _step(planned: Planned | str) -> float | str:
    return planned if isinstance(planned, str) else round(planned.report.step_time / MS, 3)
