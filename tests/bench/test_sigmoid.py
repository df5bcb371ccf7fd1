import pytest

from bench.fitting.sigmoid import SigmoidCurve, sigmoid_time
from costmodel.base.units import GB, KIB, MIB, US
from costmodel.domain.hardware import CollectiveOp

AUTHORS = SigmoidCurve(
    op=CollectiveOp.ALL_TO_ALL,
    num_ranks=4,
    latency=85.6 * US,
    latency_log2_bytes=13,
    bandwidth_log2_bytes=27,
    bandwidth=56.7134 * GB,
    height=5.97878216,
    midpoint=13.33976161,
    steepness=0.22551425,
    offset=-3.99731681,
)
"""author_params.json, V100x4_all_to_all."""


def test_sigmoid_by_hand() -> None:
    # up to 8 KiB the latency; from 128 MiB on 3/4 of the size at BW_max, 256 MiB: 3.55 ms
    assert sigmoid_time(AUTHORS, 8 * KIB) == pytest.approx(85.6 * US)
    assert sigmoid_time(AUTHORS, 256 * MIB) == pytest.approx(0.75 * 256 * MIB / (56.7134 * GB))
    # 2^20 bytes: sigmoid 5.979 / (1 + exp(-0.2255 x 6.660)) - 3.997 = 0.8925, 7.81 GB/s
    expected = 0.75 * 2**20 / (10**0.8925 * GB)
    assert sigmoid_time(AUTHORS, 1 * MIB) == pytest.approx(expected, rel=1e-3)
