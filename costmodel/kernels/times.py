"""Kernel times as functions of plain numbers: the formulas that every search evaluates.

Compiled when the package is built (types are in ``times.pxd``); the same file runs interpreted.
``kernels.embedding`` and ``kernels.collectives`` say what the formulas mean and call them on
arrays; ``costmodel.engine`` calls them on one rank after another.
"""

import math

import numpy as np
from numpy.typing import NDArray

from costmodel.kernels.traffic import (
    LINEAR_BAG_RATIO,
    SORT_BLOCK_KEYS,
    WEIGHT_GRADIENT_RATIO,
    Traffic,
)

Floats = NDArray[np.float64]

NO_BYTES: float = 1e-9
"""Stands for an empty message, which has no logarithm."""

FORWARD_HBM, FORWARD_L2, FORWARD_UVM = map(
    int, (Traffic.FORWARD_HBM, Traffic.FORWARD_L2, Traffic.FORWARD_UVM)
)
BACKWARD_HBM, BACKWARD_L2, BACKWARD_UVM = map(
    int, (Traffic.BACKWARD_HBM, Traffic.BACKWARD_L2, Traffic.BACKWARD_UVM)
)
LOOKUPS, CHAIN = int(Traffic.LOOKUPS), int(Traffic.CHAIN)
ROWS, KEYS = int(Traffic.ROWS), int(Traffic.KEYS)
UPDATES, BAGS = int(Traffic.UPDATES), int(Traffic.BAGS)
TURNS, WIDEST = int(Traffic.TURNS), int(Traffic.WIDEST)
ALPHA, OFFSET, SCALE, RATIO, SLOPE, ACROSS, OPTIONAL = range(7)
"""Columns of collectives' forms, ``collectives.CollectiveForm.numbers``."""


NO_KNOTS: Floats = np.zeros((0, 2))


class LookupRates:
    """What the times of lookup kernels need of the hardware; see ``embedding.lookup_rates``.

    ``forward_knots``, ``backward_knots``: those of a ``TimeCorrection``, shape (knots, 2).
    """

    def __init__(
        self,
        *,
        latency: float,
        forward_latency: float,
        lookup_bandwidth: float,
        update_bandwidth: float,
        gather_bandwidth: float,
        backward_latency: float,
        gradient_time: float,
        sort_rate: float,
        sort_latency: float,
        uvm_bandwidth: float,
        overlap: float,
        lookup_time: float,
        row_read_time: float,
        row_update_time: float,
        bag_time: float,
        forward_turn_time: float,
        backward_turn_time: float,
        forward_knots: Floats = NO_KNOTS,
        backward_knots: Floats = NO_KNOTS,
    ) -> None:
        self.latency = latency
        self.forward_latency = forward_latency
        self.lookup_bandwidth = lookup_bandwidth
        self.update_bandwidth = update_bandwidth
        self.gather_bandwidth = gather_bandwidth
        self.backward_latency = backward_latency
        self.gradient_time = gradient_time
        self.sort_rate = sort_rate
        self.sort_latency = sort_latency
        self.uvm_bandwidth = uvm_bandwidth
        self.overlap = overlap
        self.lookup_time = lookup_time
        self.row_read_time = row_read_time
        self.row_update_time = row_update_time
        self.bag_time = bag_time
        self.forward_turn_time = forward_turn_time
        self.backward_turn_time = backward_turn_time
        self.forward_knots = forward_knots
        self.backward_knots = backward_knots


def forward_seconds(traffic: Floats, row: int, first: int, rates: LookupRates) -> float:
    """Return the seconds of the forward kernel; 0 without lookups.

    The kernel's traffic is ``traffic[row, first : first + NUM_TRAFFIC]``.
    """
    if traffic[row, first + LOOKUPS] <= 0:
        return 0.0
    host = traffic[row, first + FORWARD_UVM] / rates.uvm_bandwidth
    checked = traffic[row, first + BAGS] * rates.bag_time
    rough = rates.forward_latency + checked + gather_seconds(traffic, row, first, rates)
    return corrected_seconds(rough, rates.forward_knots) + host


def gather_seconds(traffic: Floats, row: int, first: int, rates: LookupRates) -> float:
    """Return what gathering rows takes by the roofline, but for those from host memory."""
    hbm = traffic[row, first + FORWARD_HBM] / rates.lookup_bandwidth
    on_chip = traffic[row, first + FORWARD_L2] / rates.gather_bandwidth
    moved = max(hbm, on_chip) + (1.0 - rates.overlap) * min(hbm, on_chip)
    idle = idle_turns(traffic, row, first) * rates.forward_turn_time
    busy = max(moved + idle, traffic[row, first + CHAIN])
    rows = traffic[row, first + ROWS] * rates.row_read_time
    ids = traffic[row, first + KEYS] * rates.lookup_time
    return busy + rows + ids


def idle_turns(traffic: Floats, row: int, first: int) -> float:
    """Return the turns in which warps have nothing of narrower rows than a launch's widest."""
    widest = traffic[row, first + WIDEST]
    return max(0.0, widest * traffic[row, first + LOOKUPS] - traffic[row, first + TURNS])


def corrected_seconds(seconds: float, knots: Floats) -> float:
    """Return what ``TimeCorrection.corrected`` makes of a time."""
    count = knots.shape[0]
    if count == 0:
        return seconds
    if seconds <= knots[0, 0]:
        return seconds * knots[0, 1] / knots[0, 0]
    if seconds >= knots[count - 1, 0]:
        return seconds * knots[count - 1, 1] / knots[count - 1, 0]
    after = 1
    while knots[after, 0] < seconds:
        after += 1
    along = (seconds - knots[after - 1, 0]) / (knots[after, 0] - knots[after - 1, 0])
    return knots[after - 1, 1] + along * (knots[after, 1] - knots[after - 1, 1])


def backward_seconds(traffic: Floats, row: int, first: int, rates: LookupRates) -> float:
    """Return the seconds of the fused backward, as ``forward_seconds``."""
    if traffic[row, first + LOOKUPS] <= 0:
        return 0.0
    hbm = traffic[row, first + BACKWARD_HBM] / rates.update_bandwidth
    on_chip = traffic[row, first + BACKWARD_L2] / rates.gather_bandwidth
    sort = traffic[row, first + KEYS] / rates.sort_rate
    if traffic[row, first + KEYS] > SORT_BLOCK_KEYS:
        sort += rates.sort_latency
    host = traffic[row, first + BACKWARD_UVM] / rates.uvm_bandwidth
    moved = max(hbm, on_chip) + (1.0 - rates.overlap) * min(hbm, on_chip)
    busy = max(moved, traffic[row, first + LOOKUPS] * rates.gradient_time)
    rows = traffic[row, first + UPDATES] * rates.row_update_time
    bags = LINEAR_BAG_RATIO * traffic[row, first + BAGS] * rates.bag_time
    idle = idle_turns(traffic, row, first) * rates.backward_turn_time
    rough = rates.backward_latency + bags + sort + busy + rows + idle
    return corrected_seconds(rough, rates.backward_knots) + host


def weight_gradient_seconds(traffic: Floats, row: int, first: int, rates: LookupRates) -> float:
    """Return the seconds of ``grad_indice_weights``, as ``forward_seconds``."""
    if traffic[row, first + LOOKUPS] <= 0:
        return 0.0
    host = traffic[row, first + FORWARD_UVM] / rates.uvm_bandwidth
    gathered = gather_seconds(traffic, row, first, rates) + host
    return rates.latency + WEIGHT_GRADIENT_RATIO * gathered


def curve_seconds(
    size: float, log_bytes: Floats, log_seconds: Floats, first: int, last: int
) -> float:
    """Return the seconds of a collective by the knots ``first`` to ``last`` of curves in log space.

    Straight lines between the knots; below the first one its time, above the last its bandwidth.
    """
    log_size = math.log(max(size, NO_BYTES))
    if last - first == 1:
        return math.exp(log_seconds[first] + max(log_size - log_bytes[first], 0.0))
    inside = min(max(log_size, log_bytes[first]), log_bytes[last - 1])
    after = first + 1
    while after < last - 1 and log_bytes[after] < inside:
        after += 1
    along = (inside - log_bytes[after - 1]) / (log_bytes[after] - log_bytes[after - 1])
    known = log_seconds[after - 1] + along * (log_seconds[after] - log_seconds[after - 1])
    return math.exp(known + log_size - min(log_size, log_bytes[last - 1]))


def exchange_seconds(
    size: float,
    forms: Floats,
    row: int,
    log_bytes: Floats,
    log_seconds: Floats,
    first: int,
    last: int,
) -> float:
    """Return the seconds of a collective: ``collectives.CollectiveForm`` says how they come.

    Its form is ``forms[row]``, and its curve has the knots ``first`` to ``last``.
    """
    if size <= 0 and forms[row, OPTIONAL] != 0:
        return 0.0
    local = forms[row, OFFSET] + forms[row, SLOPE] * size
    if forms[row, SCALE] > 0:
        scaled = forms[row, RATIO] * size
        local += forms[row, SCALE] * curve_seconds(scaled, log_bytes, log_seconds, first, last)
    return forms[row, ALPHA] + max(local, forms[row, ACROSS] * size)


def stream_seconds(num_bytes: float, latency: float, bandwidth: float, knots: Floats) -> float:
    """Return the seconds of a kernel that moves bytes through HBM; 0 where there are none.

    ``knots``: those of a ``TimeCorrection``, shape (knots, 2).
    """
    if num_bytes <= 0:
        return 0.0
    return corrected_seconds(latency + num_bytes / bandwidth, knots)


def lookup_times(traffic: Floats, rates: LookupRates, backward: bool) -> Floats:
    """Return the seconds of a lookup kernel for every row of traffic, (kernels, NUM_TRAFFIC)."""
    count = traffic.shape[0]
    seconds = np.zeros(count)
    times = seconds
    for row in range(count):
        if backward:
            times[row] = backward_seconds(traffic, row, 0, rates)
        else:
            times[row] = forward_seconds(traffic, row, 0, rates)
    return seconds


def weight_gradient_times(traffic: Floats, rates: LookupRates) -> Floats:
    """Return the seconds of ``grad_indice_weights`` for every row of traffic."""
    count = traffic.shape[0]
    seconds = np.zeros(count)
    times = seconds
    for row in range(count):
        times[row] = weight_gradient_seconds(traffic, row, 0, rates)
    return seconds


def exchange_times(sizes: Floats, forms: Floats, log_bytes: Floats, log_seconds: Floats) -> Floats:
    """Return the seconds of a collective for every size in bytes; its form is ``forms[0]``."""
    count, knots = sizes.shape[0], log_bytes.shape[0]
    seconds = np.zeros(count)
    times = seconds
    for index in range(count):
        times[index] = exchange_seconds(sizes[index], forms, 0, log_bytes, log_seconds, 0, knots)
    return seconds


def stream_times(sizes: Floats, latency: float, bandwidth: float, knots: Floats) -> Floats:
    """Return the seconds of ``stream_seconds`` for every size in bytes."""
    count = sizes.shape[0]
    seconds = np.zeros(count)
    times = seconds
    for index in range(count):
        times[index] = stream_seconds(sizes[index], latency, bandwidth, knots)
    return seconds
