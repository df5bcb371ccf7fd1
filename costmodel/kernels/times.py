"""Kernel times as functions of plain numbers: the formulas that every search evaluates.

Compiled when the package is built (types are in ``times.pxd``); the same file runs interpreted.
``kernels.embedding`` and ``kernels.collectives`` say what the formulas mean and call them on
arrays; ``costmodel.engine`` calls them on one rank after another. The arrays that they read are
attributes, not arguments, as a compiled call copies all that describes one (208 bytes).
"""

import math

import numpy as np

from costmodel.base.arrays import Array
from costmodel.kernels.traffic import (
    LINEAR_BAG_RATIO,
    SORT_BLOCK_KEYS,
    WEIGHT_GRADIENT_RATIO,
    Traffic,
)

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


NO_KNOTS: Array = np.zeros((0, 2))


class Correction:
    """What corrects a rough time; its knots are those of a ``TimeCorrection``, shape (knots, 2)."""

    def __init__(self, knots: Array) -> None:
        self.knots, self.count = knots, knots.shape[0]

    def corrected(self, seconds: float) -> float:
        """Return a corrected time, as ``TimeCorrection.corrected``."""
        if self.count == 0:
            return seconds
        last = self.count - 1
        if seconds <= self.knots[0, 0]:
            return seconds * self.knots[0, 1] / self.knots[0, 0]
        if seconds >= self.knots[last, 0]:
            return seconds * self.knots[last, 1] / self.knots[last, 0]
        after = 1
        while self.knots[after, 0] < seconds:
            after += 1
        before = after - 1
        along = (seconds - self.knots[before, 0]) / (self.knots[after, 0] - self.knots[before, 0])
        return self.knots[before, 1] + along * (self.knots[after, 1] - self.knots[before, 1])


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
        forward_knots: Array = NO_KNOTS,
        backward_knots: Array = NO_KNOTS,
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
        self.forward_correction = Correction(forward_knots)
        self.backward_correction = Correction(backward_knots)


class LookupTimes:
    """Times of lookup kernels; a kernel's traffic is ``traffic[row, first : first + NUM_TRAFFIC]``.

    ``traffic``: shape (rows, columns); the caller may change it.
    """

    def __init__(self, traffic: Array, rates: LookupRates) -> None:
        self.traffic, self.rates = traffic, rates

    def forward_seconds(self, row: int, first: int) -> float:
        """Return the seconds of the forward kernel; 0 without lookups."""
        if self.traffic[row, first + LOOKUPS] <= 0:
            return 0.0
        rates = self.rates
        host = self.traffic[row, first + FORWARD_UVM] / rates.uvm_bandwidth
        checked = self.traffic[row, first + BAGS] * rates.bag_time
        rough = rates.forward_latency + checked + self._gather_seconds(row, first)
        return rates.forward_correction.corrected(rough) + host

    def _gather_seconds(self, row: int, first: int) -> float:
        """Return the roofline's seconds of gathering rows, without those from host memory."""
        rates = self.rates
        hbm = self.traffic[row, first + FORWARD_HBM] / rates.lookup_bandwidth
        on_chip = self.traffic[row, first + FORWARD_L2] / rates.gather_bandwidth
        moved = max(hbm, on_chip) + (1.0 - rates.overlap) * min(hbm, on_chip)
        idle = self.idle_turns(row, first) * rates.forward_turn_time
        busy = max(moved + idle, self.traffic[row, first + CHAIN])
        rows = self.traffic[row, first + ROWS] * rates.row_read_time
        ids = self.traffic[row, first + KEYS] * rates.lookup_time
        return busy + rows + ids

    def idle_turns(self, row: int, first: int) -> float:
        """Return the turns in which warps of narrower rows than a launch's widest are idle."""
        widest, lookups = self.traffic[row, first + WIDEST], self.traffic[row, first + LOOKUPS]
        return max(0.0, widest * lookups - self.traffic[row, first + TURNS])

    def backward_seconds(self, row: int, first: int) -> float:
        """Return the seconds of the fused backward; 0 without lookups."""
        if self.traffic[row, first + LOOKUPS] <= 0:
            return 0.0
        rates = self.rates
        hbm = self.traffic[row, first + BACKWARD_HBM] / rates.update_bandwidth
        on_chip = self.traffic[row, first + BACKWARD_L2] / rates.gather_bandwidth
        sort = self.traffic[row, first + KEYS] / rates.sort_rate
        if self.traffic[row, first + KEYS] > SORT_BLOCK_KEYS:
            sort += rates.sort_latency
        host = self.traffic[row, first + BACKWARD_UVM] / rates.uvm_bandwidth
        moved = max(hbm, on_chip) + (1.0 - rates.overlap) * min(hbm, on_chip)
        busy = max(moved, self.traffic[row, first + LOOKUPS] * rates.gradient_time)
        rows = self.traffic[row, first + UPDATES] * rates.row_update_time
        bags = LINEAR_BAG_RATIO * self.traffic[row, first + BAGS] * rates.bag_time
        idle = self.idle_turns(row, first) * rates.backward_turn_time
        rough = rates.backward_latency + bags + sort + busy + rows + idle
        return rates.backward_correction.corrected(rough) + host

    def weight_gradient_seconds(self, row: int, first: int) -> float:
        """Return the seconds of ``grad_indice_weights``; 0 without lookups."""
        if self.traffic[row, first + LOOKUPS] <= 0:
            return 0.0
        host = self.traffic[row, first + FORWARD_UVM] / self.rates.uvm_bandwidth
        gathered = self._gather_seconds(row, first) + host
        return self.rates.latency + WEIGHT_GRADIENT_RATIO * gathered


class StreamTimes:
    """Times of kernels that move bytes through HBM.

    ``knots``: those of a ``TimeCorrection``, shape (knots, 2).
    """

    def __init__(self, latency: float, bandwidth: float, knots: Array) -> None:
        self.latency, self.bandwidth = latency, bandwidth
        self.correction = Correction(knots)

    def seconds(self, num_bytes: float) -> float:
        """Return the seconds of a kernel; 0 where there are no bytes."""
        if num_bytes <= 0:
            return 0.0
        return self.correction.corrected(self.latency + num_bytes / self.bandwidth)


class ExchangeTimes:
    """Times of collectives: ``collectives.CollectiveForm`` says how they come.

    ``forms``: (collectives, columns from ``ALPHA`` to ``OPTIONAL``); ``log_bytes``,
    ``log_seconds``: the knots of all curves, (knots,).
    """

    def __init__(self, forms: Array, log_bytes: Array, log_seconds: Array) -> None:
        self.forms, self.log_bytes, self.log_seconds = forms, log_bytes, log_seconds

    def seconds(self, size: float, row: int, first: int, last: int) -> float:
        """Return the seconds of a collective; its curve has the knots ``first`` to ``last``."""
        if size <= 0 and self.forms[row, OPTIONAL] != 0:
            return 0.0
        local = self.forms[row, OFFSET] + self.forms[row, SLOPE] * size
        if self.forms[row, SCALE] > 0:
            scaled = self.forms[row, RATIO] * size
            local += self.forms[row, SCALE] * self._curve_seconds(scaled, first, last)
        return self.forms[row, ALPHA] + max(local, self.forms[row, ACROSS] * size)

    def _curve_seconds(self, size: float, first: int, last: int) -> float:
        """Return the seconds of a collective by some knots of curves in log space.

        Straight lines between the knots; below the first one its time, above the last its
        bandwidth.
        """
        log_size = math.log(max(size, NO_BYTES))
        if last - first == 1:
            return math.exp(self.log_seconds[first] + max(log_size - self.log_bytes[first], 0.0))
        inside = min(max(log_size, self.log_bytes[first]), self.log_bytes[last - 1])
        after = first + 1
        while after < last - 1 and self.log_bytes[after] < inside:
            after += 1
        before = after - 1
        along = (inside - self.log_bytes[before]) / (self.log_bytes[after] - self.log_bytes[before])
        rise = self.log_seconds[after] - self.log_seconds[before]
        known = self.log_seconds[before] + along * rise
        return math.exp(known + log_size - min(log_size, self.log_bytes[last - 1]))


def lookup_times(traffic: Array, rates: LookupRates, backward: bool) -> Array:
    """Return the seconds of a lookup kernel for every row of traffic, (kernels, NUM_TRAFFIC)."""
    count, lookups = traffic.shape[0], LookupTimes(traffic, rates)
    seconds = np.zeros(count)
    times = seconds
    for row in range(count):
        if backward:
            times[row] = lookups.backward_seconds(row, 0)
        else:
            times[row] = lookups.forward_seconds(row, 0)
    return seconds


def weight_gradient_times(traffic: Array, rates: LookupRates) -> Array:
    """Return the seconds of ``grad_indice_weights`` for every row of traffic."""
    count, lookups = traffic.shape[0], LookupTimes(traffic, rates)
    seconds = np.zeros(count)
    times = seconds
    for row in range(count):
        times[row] = lookups.weight_gradient_seconds(row, 0)
    return seconds


def exchange_times(sizes: Array, forms: Array, log_bytes: Array, log_seconds: Array) -> Array:
    """Return the seconds of a collective for every size in bytes; its form is ``forms[0]``."""
    count, knots = sizes.shape[0], log_bytes.shape[0]
    exchange = ExchangeTimes(forms, log_bytes, log_seconds)
    seconds = np.zeros(count)
    times = seconds
    for index in range(count):
        times[index] = exchange.seconds(sizes[index], 0, 0, knots)
    return seconds


def stream_times(sizes: Array, latency: float, bandwidth: float, knots: Array) -> Array:
    """Return the seconds of ``StreamTimes`` for every size in bytes."""
    count, stream = sizes.shape[0], StreamTimes(latency, bandwidth, knots)
    seconds = np.zeros(count)
    times = seconds
    for index in range(count):
        times[index] = stream.seconds(sizes[index])
    return seconds
