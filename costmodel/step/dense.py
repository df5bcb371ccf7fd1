"""The data-parallel part of a step, forward and backward, around the embeddings' lookups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from costmodel.domain.hardware import Gpu
from costmodel.domain.workload import LaunchMode, Workload
from costmodel.kernels.listed_collectives import ListedCollective
from costmodel.step.buckets import GradientBuckets
from costmodel.step.builder import StepBuilder
from costmodel.step.dense_kernels import DenseKernel, DenseStretches
from costmodel.step.exchange_operations import STAGE_OF
from costmodel.step.graph import Stage
from costmodel.step.layer_kernels import layer_kernels
from costmodel.step.operator_kernels import operator_kernels

MOST_WRITTEN_KERNELS = 64
"""Kernels of a stretch that are written one by one; of more, runs of several are written as one,
which changes no step time (``StepBuilder.kernels``)."""
Hooks: TypeAlias = Mapping[int, Callable[[], None]]
"""Functions called once the gradients of a layer of the top MLP are ready, by its number."""
NO_HOOKS: Hooks = MappingProxyType({})


@lru_cache(maxsize=16)
def dense_kernels(workload: Workload, gpu: Gpu) -> DenseStretches:
    """Return the kernels of a workload's dense part: of its operators, or else its layers."""
    if workload.dense.operators is not None:
        return operator_kernels(workload, gpu)
    return layer_kernels(workload, gpu)


@dataclass(frozen=True, slots=True)
class DensePart:
    """Adds the dense kernels of one step, a stretch at a time."""

    builder: StepBuilder
    kernels: DenseStretches
    launch: LaunchMode = LaunchMode.EAGER

    def before_lookups(self) -> None:
        """Add the forward up to where embeddings are read."""
        self._add(self.kernels.before_lookups, Stage.DENSE_FORWARD)

    def after_lookups(self) -> None:
        """Add the rest of the forward, with the loss."""
        self._add(self.kernels.after_lookups, Stage.DENSE_FORWARD)

    def before_exchange(self, gradients: GradientBuckets, hooks: Hooks = NO_HOOKS) -> None:
        """Add the backward up to where all embeddings have their gradients.

        Hooks are called after the layers of their numbers.
        """
        self._add(self.kernels.before_exchange, Stage.DENSE_BACKWARD, gradients, hooks)

    def after_exchange(self, gradients: GradientBuckets) -> None:
        """Add the rest of the backward."""
        self._add(self.kernels.after_exchange, Stage.DENSE_BACKWARD, gradients)

    def _add(
        self,
        kernels: Sequence[DenseKernel],
        stage: Stage,
        gradients: GradientBuckets | None = None,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        size = -(-len(kernels) // MOST_WRITTEN_KERNELS)
        run: list[DenseKernel] = []
        with self.builder.called_as(self.launch):
            for kernel in kernels:
                alone = kernel.collective is not None
                if alone:
                    self._write(run, stage)
                    run = []
                run.append(kernel)
                if len(run) < size and not kernel.gradients and not alone:
                    continue
                self._write(run, stage)
                run = []
                if gradients is not None:
                    for each in kernel.gradients:
                        gradients.add(each)
                if kernel.top_layer is not None and kernel.top_layer in hooks:
                    hooks[kernel.top_layer]()
            self._write(run, stage)

    def _write(self, run: Sequence[DenseKernel], stage: Stage) -> None:
        """Add some kernels as one, named after the longest."""
        if not run:
            return
        longest = max(run, key=lambda each: each.seconds)
        if longest.collective is not None:
            self._exchange(longest.name, longest.collective, stage)
            return
        if len(run) == 1:
            self.builder.kernel(
                longest.name, stage, longest.seconds, issue=longest.issue,
                num_bytes=longest.num_bytes, role=longest.role, basis=longest.basis,
            )  # fmt: skip
            return
        self.builder.kernels(
            f"{longest.name} and {len(run) - 1} more", stage,
            [(each.seconds, each.issue) for each in run],
            num_bytes=sum(each.num_bytes for each in run), role=longest.role, basis=longest.basis,
        )  # fmt: skip

    def _exchange(self, name: str, collective: ListedCollective, stage: Stage) -> None:
        """Add a collective that all kernels after it wait for; of one rank, its host time alone."""
        builder = self.builder
        if collective.num_ranks == 1:
            builder.host(name)
            return
        group = builder.around(collective.num_ranks)
        estimate = collective.estimate(builder.local_world_size, builder.hardware)
        sent = builder.collective(
            name, STAGE_OF[collective.op], estimate.seconds, group=group,
            num_bytes=collective.num_bytes, basis=estimate.basis,
        )  # fmt: skip
        builder.kernel(f"wait for {name}", stage, 0.0, after=(sent,))
