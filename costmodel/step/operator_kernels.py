"""Kernels of a dense part that is given as a list of operators."""

from collections.abc import Iterable, Sequence

from costmodel.domain.dense_operators import machine_operators, rank_operators
from costmodel.domain.hardware import Gpu, Topology
from costmodel.domain.workload import DataType, LaunchMode, Workload
from costmodel.kernels.listed_collectives import collective_of
from costmodel.kernels.operators import fused_estimate, is_known, operator_estimate
from costmodel.operators.compiled import FusedOperators, fused
from costmodel.operators.operator_families import family_of, plain_name
from costmodel.operators.operator_list import DenseOperator
from costmodel.operators.products import MULTIPLYING
from costmodel.operators.work import moved
from costmodel.step.dense_kernels import DenseKernel, DenseStretches
from costmodel.step.graph import Role
from costmodel.step.issue import LISTED_OP


def operator_kernels(workload: Workload, gpu: Gpu) -> DenseStretches:
    """Return the kernels of a workload's operators at a rank's batch, in the order of the list.

    Embeddings are waited for before the first operator that reads one, and their gradients are sent
    after the last operator that gives one.
    """
    listed = machine_operators(rank_operators(workload), gpu)
    precision = workload.dense.precision
    sizes, operators = [each.num_bytes for each in listed.parameters], listed.operators

    def kernels(begin: int, end: int) -> list[DenseKernel]:
        return [
            _kernel(kernel, precision, gpu)._replace(
                gradients=tuple(sizes[n] for each in kernel.operators for n in each.parameters)
            )
            for kernel in _called(workload.dense.launch, operators[begin:end], operators[end:])
        ]

    lookup, loss, exchange = listed.lookup_place, listed.loss_place, listed.exchange_place
    return DenseStretches(
        before_lookups=kernels(0, lookup),
        after_lookups=kernels(lookup, loss),
        before_exchange=kernels(loss, exchange),
        after_exchange=kernels(exchange, len(operators)),
    )


def _kernel(kernel: FusedOperators, precision: DataType, gpu: Gpu) -> DenseKernel:
    """Return a kernel, or a collective, without the gradients that its end makes known."""
    name = "+".join(each.name.removeprefix("aten::") for each in kernel.operators)
    joined = collective_of(kernel.operators[0])
    if joined is not None:
        return DenseKernel(name, 0.0, collective=joined)
    estimate = fused_estimate(kernel, precision, gpu)
    role = _role(kernel.operators, gpu)
    return DenseKernel(name, estimate.seconds, sum(kernel.moved), LISTED_OP, role, estimate.basis)


def _called(
    launch: LaunchMode,
    operators: Sequence[DenseOperator[int]],
    later: Sequence[DenseOperator[int]],
) -> Iterable[FusedOperators]:
    """Return the kernels that operators are: a compiler fuses them."""
    if launch is LaunchMode.COMPILED:
        return fused(operators, later)
    return (FusedOperators((each,), moved(each)) for each in operators)


def _role(operators: Iterable[DenseOperator[int]], gpu: Gpu) -> Role:
    """Return the role of the kernel of some operators: what its error is the error of."""
    if any(family_of(each.name) in MULTIPLYING for each in operators):
        return Role.PRODUCT
    return Role.OTHER if all(is_known(each, gpu) for each in operators) else Role.BY_BYTES


def unknown_shares(workload: Workload, topology: Topology) -> dict[str, float]:
    """Return the share of the kernels' time that each operator takes that no model knows."""
    gpu, precision = topology.hardware.gpu, workload.dense.precision
    times = dict[str, float]()
    total = 0.0
    for each in machine_operators(rank_operators(workload), gpu).operators:
        if collective_of(each) is not None:
            continue
        seconds, name = operator_estimate(each, precision, gpu).seconds, plain_name(each.name)
        total += seconds
        if not is_known(each, gpu):
            times[name] = times.get(name, 0.0) + seconds
    return {name: seconds / total for name, seconds in times.items()}
