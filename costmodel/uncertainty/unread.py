"""The time of a dense part that was only read in part: attention, experts, sequences.

Of 41 configurations of TorchEasyRec and four scripts the linear layers, read as if each ran once
per sample and one after the other, have 1.1 (DeepFM), 0.8 (MMoE), 0.5 (DLRM), 0.24 (DIN), 0.12
(MIND) and 0.007 (HSTU) of the FLOPs that torch counts. ``DenseModel.most_products`` bounds how much
more there may be; that is the end of the interval, not what is expected.
"""

from math import log1p, sqrt

from costmodel.base.units import Seconds
from costmodel.domain.dense_layers import num_products
from costmodel.domain.hardware import Gpu
from costmodel.domain.workload import Workload
from costmodel.kernels.gemm import ALIGNED_BYTES, gemm_estimate
from costmodel.step.graph import NodeKind, Stage
from costmodel.step.step_operations import Op, StepOperations
from costmodel.uncertainty.error_model import NORMAL_90

_DENSE = (Stage.DENSE_FORWARD, Stage.DENSE_BACKWARD)


def unread_time(workload: Workload, gpu: Gpu) -> Seconds:
    """Return the seconds by which a dense part may take longer, or shorter, than its layers.

    Of d multiplications for each of B samples more or fewer than in the layers, as one square
    product for the forward and two for the backward:

        t = 3 gemm(B, sqrt(d), sqrt(d))

    Assumed: products are most of it, and large ones. What issuing them takes is left out.
    """
    dense = workload.dense
    if not dense.most_products:
        return 0.0
    side = sqrt(abs(dense.most_products - num_products(workload)))
    if side < ALIGNED_BYTES:
        return 0.0
    side -= side % ALIGNED_BYTES
    product = gemm_estimate(workload.local_batch_size, side, side, dense.precision, gpu)
    return 3.0 * product.seconds


def unread_spread(step: StepOperations, unread: Seconds) -> float:
    """Return the standard deviation of the log of the seconds of a step's dense kernels.

    With it a 90% interval ends where all of ``unread`` is added, in log-normal factors: exp(1.645
    s) = (t + unread) / t.
    """
    if not unread:
        return 0.0
    timed = sum(float(op.seconds.max()) for op in step.ops if is_dense_kernel(op))
    return log1p(unread / timed) / NORMAL_90 if timed else 0.0


def is_dense_kernel(op: Op) -> bool:
    """Tell whether an operation is a kernel of the dense model's forward or backward."""
    return op.kind is NodeKind.KERNEL and op.stage in _DENSE
