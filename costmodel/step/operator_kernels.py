"""Kernels of a dense part that is given as a list of operators."""

from collections.abc import Sequence

from costmodel.domain.dense_operators import rank_operators
from costmodel.domain.hardware import Gpu
from costmodel.domain.workload import Workload
from costmodel.kernels.operators import operator_estimate
from costmodel.operators.on_cuda import on_cuda
from costmodel.operators.operator_families import family_of
from costmodel.operators.operator_list import DenseOperator
from costmodel.operators.products import MULTIPLYING
from costmodel.operators.work import moved
from costmodel.step.dense_kernels import DenseKernel, DenseStretches
from costmodel.step.graph import Role


def operator_kernels(workload: Workload, gpu: Gpu) -> DenseStretches:
    """Return the kernels of a workload's operators at a rank's batch, in the order of the list.

    Embeddings are waited for before the first operator that reads one, and their gradients are sent
    after the last operator that gives one.
    """
    listed, precision = rank_operators(workload), workload.dense.precision
    if not gpu.is_core:
        listed = on_cuda(listed)
    sizes = [each.num_bytes for each in listed.parameters]

    def kernels(operators: Sequence[DenseOperator[int]]) -> list[DenseKernel]:
        return [
            DenseKernel(
                each.name.removeprefix("aten::"),
                estimate.seconds,
                sum(moved(each)),
                role=Role.PRODUCT if family_of(each.name) in MULTIPLYING else Role.OTHER,
                basis=estimate.basis,
                gradients=tuple(sizes[place] for place in each.parameters),
            )
            for each in operators
            for estimate in [operator_estimate(each, precision, gpu)]
        ]

    lookup, loss, exchange = listed.lookup_place, listed.loss_place, listed.exchange_place
    operators = listed.operators
    return DenseStretches(
        before_lookups=kernels(operators[:lookup]),
        after_lookups=kernels(operators[lookup:loss]),
        before_exchange=kernels(operators[loss:exchange]),
        after_exchange=kernels(operators[exchange:]),
    )
