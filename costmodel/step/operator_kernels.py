"""Kernels of a dense part that is given as a list of operators."""

from collections.abc import Sequence

from costmodel.domain.dense_operators import rank_operators
from costmodel.domain.hardware import Gpu, Topology
from costmodel.domain.workload import Workload
from costmodel.kernels.operators import is_known, operator_estimate
from costmodel.operators.on_cuda import on_cuda
from costmodel.operators.operator_families import family_of, plain_name
from costmodel.operators.operator_list import DenseOperator, OperatorList
from costmodel.operators.products import MULTIPLYING
from costmodel.operators.work import moved
from costmodel.step.dense_kernels import DenseKernel, DenseStretches
from costmodel.step.graph import Role


def operator_kernels(workload: Workload, gpu: Gpu) -> DenseStretches:
    """Return the kernels of a workload's operators at a rank's batch, in the order of the list.

    Embeddings are waited for before the first operator that reads one, and their gradients are sent
    after the last operator that gives one.
    """
    listed, precision = _listed(workload, gpu), workload.dense.precision
    sizes = [each.num_bytes for each in listed.parameters]

    def kernels(operators: Sequence[DenseOperator[int]]) -> list[DenseKernel]:
        return [
            DenseKernel(
                each.name.removeprefix("aten::"),
                estimate.seconds,
                sum(moved(each)),
                role=_role(each, gpu),
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


def _role(operator: DenseOperator[int], gpu: Gpu) -> Role:
    """Return the role of an operator's kernel: what its error is the error of."""
    if family_of(operator.name) in MULTIPLYING:
        return Role.PRODUCT
    return Role.OTHER if is_known(operator, gpu) else Role.BY_BYTES


def unknown_shares(workload: Workload, topology: Topology) -> dict[str, float]:
    """Return the share of the kernels' time that each operator takes that no model knows."""
    gpu, precision = topology.hardware.gpu, workload.dense.precision
    times = dict[str, float]()
    total = 0.0
    for each in _listed(workload, gpu).operators:
        seconds, name = operator_estimate(each, precision, gpu).seconds, plain_name(each.name)
        total += seconds
        if not is_known(each, gpu):
            times[name] = times.get(name, 0.0) + seconds
    return {name: seconds / total for name, seconds in times.items()}


def _listed(workload: Workload, gpu: Gpu) -> OperatorList[int]:
    """Return a workload's operators at a rank's batch, as a machine runs them."""
    listed = rank_operators(workload)
    return listed if gpu.is_core else on_cuda(listed)
