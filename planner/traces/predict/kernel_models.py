"""Times of a trace's kernels, by the models that time operators of a plan's dense part."""

from dataclasses import dataclass, replace

from costmodel.base.units import Bytes
from costmodel.domain.hardware import Bound, Estimate, Gpu
from costmodel.domain.workload import DataType
from costmodel.kernels.operators import bytes_estimate, operator_estimate
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import DenseOperator, ElementType
from costmodel.operators.products import MULTIPLYING, check_form, factors
from costmodel.operators.work import moved

_MULTIPLIED = {ElementType.FLOAT32, ElementType.FLOAT16, ElementType.BFLOAT16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A kernel with its predicted time."""

    name: str
    family: OperatorFamily
    """``OTHER`` if no model knows the kernel: its time is estimated from bytes."""
    num_bytes: Bytes
    estimate: Estimate

    @property
    def known(self) -> bool:
        """Whether a model knows the operator."""
        return self.family is not OperatorFamily.OTHER


def timed(operator: DenseOperator[int], gpu: Gpu) -> Timed:
    """Return an operator with the time of its kernel."""
    family = _known_family(operator, gpu)
    if family is OperatorFamily.OTHER:
        by_bytes = bytes_estimate(operator, gpu)
        estimate = replace(by_bytes, bound_by=Bound.BYTES_OF_TENSORS, extrapolated=True)
    else:
        estimate = operator_estimate(operator, DataType.FP32, gpu)
    return Timed(
        name=operator.name, family=family, num_bytes=sum(moved(operator)), estimate=estimate
    )


def _known_family(operator: DenseOperator[int], gpu: Gpu) -> OperatorFamily:
    """Return an operator's family; ``OTHER`` too where it multiplies what no model multiplies."""
    family = family_of(operator.name)
    if family not in MULTIPLYING:
        return family
    try:
        check_form(operator)
    except ValueError:
        return OperatorFamily.OTHER
    multiplied = {each.data_type for each in factors(operator)} <= _MULTIPLIED
    return family if multiplied and gpu.gemm else OperatorFamily.OTHER
