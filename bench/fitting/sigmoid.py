"""The paper's sigmoid: bus bandwidth of a collective over the size of its message."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.base.units import GB, BytesPerSecond, Seconds
from costmodel.domain.hardware import CollectiveOp
from costmodel.kernels.collectives import bus_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class SigmoidCurve:
    """The paper's eight parameters of one collective on a fixed number of ranks."""

    op: CollectiveOp
    num_ranks: int
    latency: Seconds
    """t_s."""
    latency_log2_bytes: float
    """log2 m1: up to here only the latency counts."""
    bandwidth_log2_bytes: float
    """log2 m2: from here on only the bandwidth counts."""
    bandwidth: BytesPerSecond
    """BW_max, bus bandwidth."""
    height: float
    """L of the sigmoid."""
    midpoint: float
    """x0 of the sigmoid, in log2 bytes."""
    steepness: float
    """k of the sigmoid."""
    offset: float
    """b of the sigmoid."""


def sigmoid_time(curve: SigmoidCurve, num_bytes: ArrayLike) -> NDArray[np.float64]:
    """Time of a collective by the paper's sigmoid.

    With m the size and c the bus factor:

        t = t_s                                m <= m1
        t = m c / 10^(sigmoid(log2 m)) GB/s    m1 < m < m2
        t = m c / BW_max                       m >= m2
        sigmoid(x) = L / (1 + exp(-k (x - x0))) + b

    Parameters
    ----------
    curve
        The eight parameters.
    num_bytes
        m, nccl-tests' size.

    References
    ----------
    The paper's Eq. 3. The published code (owensgroup/ml_perf_model, analysis/inference.py) adds t_s
    above m2, too, where BW_max was measured with it.

    """
    size = np.asarray(num_bytes, dtype=np.float64)
    log_size = np.log2(np.maximum(size, 1.0))
    exponent = curve.height / (1 + np.exp(-curve.steepness * (log_size - curve.midpoint)))
    moved = size * bus_factor(curve.op, curve.num_ranks)
    middle = moved / (10 ** (exponent + curve.offset) * GB)
    time = np.where(log_size >= curve.bandwidth_log2_bytes, moved / curve.bandwidth, middle)
    return np.where(log_size <= curve.latency_log2_bytes, curve.latency, time)
