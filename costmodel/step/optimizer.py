"""The optimizer of dense parameters and replicated tables, as torch runs it.

torch has three implementations of every optimizer: one fused kernel for all parameters, one
kernel per operation for all of them (foreach), and a loop over parameters with one kernel per
operation and parameter. By default it takes foreach if every parameter is a plain CUDA tensor, else
the loop (``_default_to_fused_or_foreach``). A replicated table's is a
``TableBatchedEmbeddingSlice``: one of them, and all parameters go through the loop.

References
----------
torch 2.13, torch/optim: optimizer.py 161-186, adagrad.py ``_single_tensor_adagrad`` and
``_multi_tensor_adagrad``, adam.py, sgd.py, utils/_foreach_utils.py. torchrec 1.9.2,
distributed/embeddingbag.py 1265-1272. 8 x V100 trace (``dlrm8_v100``): ``Adagrad.step`` with 14
dense parameters and two replicated tables, 64 launches in 1,375 us.

"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.dense_layers import trained_parameters
from costmodel.domain.hardware import Device, Gpu, HardwareProfile
from costmodel.domain.workload import Optimizer, OptimizerImplementation, Workload
from costmodel.step.builder import StepBuilder
from costmodel.step.graph import Stage
from costmodel.step.issue import Issue
from costmodel.step.template import GroupFormulas, Linear

_SGD, _ADAGRAD, _ADAM = Optimizer.SGD, Optimizer.ADAGRAD, Optimizer.ADAM
_LISTED_OPS = 0.5
"""Operators' worth of what foreach does on the host for each parameter that has a step counter:
adds to it, reads it, lists the step sizes. ``Adagrad.step`` of 25 parameters takes 1,353 us on an
H200's host where ``SGD.step`` of 16 takes 373, and an operator as issue.py counts them 65
(gpu_study_h200_2026-11-26, traces of dcnv2 and dlrm, profiler attached); taken for Adam's too."""
_CALL_OPS = 2.0
"""Operators of ``step`` itself: hooks and lists of parameters."""


class Kernels(NamedTuple):
    """Kernels and host work of one call of an implementation, or of one turn of its loop."""

    num_ops: float
    num_launches: float
    passes: float
    """Times it reads or writes the size of the parameters."""
    in_place: float
    """Those of them that are of kernels that change a tensor in place."""

    def copied_passes(self, gpu: Gpu) -> float:
        """Return the passes of copies that take as long."""
        return self.passes - self.in_place * (1.0 - 1.0 / gpu.in_place_efficiency)


IMPLEMENTATIONS: Mapping[OptimizerImplementation, Mapping[Optimizer, Kernels]] = {
    # add_
    OptimizerImplementation.FOR_LOOP: {
        _SGD: Kernels(1, 1, 3, 3),
        # addcmul_ 3, sqrt 2, add_ 2, addcdiv_ 4; and the step's counter
        _ADAGRAD: Kernels(5, 4, 11, 9),
        # lerp_ 3, mul_ 2, addcmul_ 3, sqrt 2, div 2, add_ 2, addcdiv_ 4; and the step's counter
        _ADAM: Kernels(8, 7, 18, 14),
    },
    OptimizerImplementation.FOREACH: {
        _SGD: Kernels(1, 1, 3, 3),
        # as the loop, and the gradients times the learning rate 2
        _ADAGRAD: Kernels(5, 5, 13, 9),
        # div_ is in place here
        _ADAM: Kernels(7, 7, 18, 16),
    },
    # gradient, parameter twice, each state twice
    OptimizerImplementation.FUSED: {
        _SGD: Kernels(1, 1, 3, 3),
        _ADAGRAD: Kernels(1, 1, 5, 5),
        _ADAM: Kernels(1, 1, 7, 7),
    },
}


@dataclass(frozen=True, slots=True)
class DenseOptimizer:
    """Adds the optimizer of dense parameters and replicated tables to a step."""

    builder: StepBuilder
    workload: Workload

    def write(self, replicated: Sequence[GroupFormulas] = ()) -> None:
        """Add the update of all parameters, including replicated tables.

        In the loop, kernels run while the host issues those of the next parameters.
        """
        trained = trained_parameters(self.workload)
        hardware = self.builder.hardware
        used = _implementation(self.workload, hardware, replicated=bool(replicated))
        kernels = _kernels(self.workload, used)
        tables = sum((group.tables for group in replicated), start=Linear())
        parameters = (each for group in replicated for each in group.parameter_bytes.values())
        moved = sum(parameters, start=Linear())
        held = moved + trained.num_bytes
        num_bytes = kernels.passes * held
        loops = used is OptimizerImplementation.FOR_LOOP
        turns = tables + float(trained.num_tensors) if loops else Linear.of(1.0)
        launches = kernels.num_launches * turns
        rate = hardware.gpu.memory_bandwidth / kernels.copied_passes(hardware.gpu)
        seconds = launches * hardware.gpu.kernel_latency + held / rate
        with self.builder.part_of(*(group.key for group in replicated)):
            self.builder.kernel(
                "dense optimizer", Stage.OPTIMIZER, self.builder.linear_time(seconds),
                issue=Issue(
                    _CALL_OPS + kernels.num_ops + self._listed_ops(used), kernels.num_launches
                ),
                num_bytes=num_bytes,
            )  # fmt: skip
            if loops:
                self.builder.host(
                    "rest of the optimizer's loop",
                    num_ops=kernels.num_ops, num_launches=kernels.num_launches, times=turns + -1.0,
                )  # fmt: skip

    def _listed_ops(self, used: OptimizerImplementation) -> float:
        """Return host work of foreach that grows with the number of parameters."""
        counts = self.workload.dense.optimizer.elementwise is not _SGD
        if used is not OptimizerImplementation.FOREACH or not counts:
            return 0.0
        return _LISTED_OPS * trained_parameters(self.workload).num_tensors


def _implementation(
    workload: Workload, hardware: HardwareProfile, *, replicated: bool
) -> OptimizerImplementation:
    """Return the implementation that is asked for, or torch's choice."""
    asked = workload.dense.optimizer_implementation
    if asked is not None:
        return asked
    if replicated or hardware.device is Device.CPU:
        return OptimizerImplementation.FOR_LOOP
    return OptimizerImplementation.FOREACH


def _kernels(workload: Workload, used: OptimizerImplementation) -> Kernels:
    return IMPLEMENTATIONS[used][workload.dense.optimizer.elementwise]


def replica_update_time(workload: Workload, hardware: HardwareProfile, num_bytes: Bytes) -> Seconds:
    """Return the seconds that one more replicated table adds to the dense optimizer.

    They are the longer of host's and device's, which run side by side.
    """
    used = _implementation(workload, hardware, replicated=True)
    kernels = _kernels(workload, used)
    gpu, host = hardware.gpu, hardware.host
    moved = kernels.copied_passes(gpu) * num_bytes / gpu.memory_bandwidth
    if used is not OptimizerImplementation.FOR_LOOP:
        return moved
    issued = kernels.num_ops * host.op_time
    running = moved + kernels.num_launches * gpu.kernel_latency
    if hardware.device is Device.CPU:
        return issued + running
    return max(issued + kernels.num_launches * host.launch_time, running)
