"""Table-batched embedding (TBE) kernels: forward lookup, backward fused with the optimizer.

A roofline over additive traffic. Every shard contributes a vector of ``Traffic``; one kernel
serves all shards of a group on a rank, so the vectors add up (``MAXIMA`` combine by maximum) and
the time is a function of the sum:

    forward  = t0_f + bags t_bag + uvm / BW_uvm
               + max(max(hbm / (BW eff_r), on_chip / BW_gather) + idle t_turn_f, chain)
    backward = t0_b + r_bag bags t_bag + t_sort + keys / sort_rate + updates t_row + uvm / BW_uvm
               + max(hbm / (BW eff_w), on_chip / BW_gather, keys t_gradient) + idle t_turn_b
    grad_indice_weights = t0 + r max(...)

``t0_f`` is a lookup of few ids, four kernels one after the other; ``t0_b`` a backward of few ids,
some fifteen; ``t_sort`` what more kernels take once the ids are more than one block can sort
(``SORT_BLOCK_KEYS``); ``t_gradient`` what a warp takes to add one id's gradient to its row's, which
is bound by latency; ``t_bag`` what a bag takes where ids are checked before they are looked up
(``bounds_check_indices``, a warp for each bag), of which it takes ``r_bag`` where ids are made
linear to be sorted; ``t_row`` what a warp takes to update a row by row-wise Adagrad, beside its
bytes, and other optimizers in proportion; ``idle`` the turns of a warp, for every id, that the
launch's widest table needs and the id's own does not: the kernel is compiled for the widest. A
weighted lookup's backward also runs ``grad_indice_weights``, an operator of its own, which gathers
the rows again. The constants, what they were fitted to and what they miss on shapes left out:
``bench.lookup_fit``, and for newer GPUs ``bench.gpu_study``.

Where less is hidden behind something else, a profile says so: a share ``1 - overlap`` of the
smaller of HBM and L2 time is added to the larger. On a CPU's core every id (``lookup_time``) and
every distinct row (``row_read_time``, ``row_update_time``) takes time beyond its bytes, too.
``kernels.shard_traffic`` says what shards move.

References
----------
Lin et al., section III-C (reuse factors of one batch); Yang et al., the roofline of embedding
bags; FBGEMM ``split_embeddings`` kernels for what is read and written; ``bench.fitting.launches``
for what was measured.

"""

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.domain.families import is_lookup_covered
from costmodel.domain.hardware import Bound, Estimate, HardwareProfile, Source
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer
from costmodel.kernels import times
from costmodel.kernels.lookup_shards import LookupShard, LookupShards
from costmodel.kernels.shard_traffic import gpu_caches, shard_traffics
from costmodel.kernels.times import LookupRates, LookupTimes
from costmodel.kernels.traffic import (
    BACKWARD_KERNELS,
    LINEAR_BAG_RATIO,
    MAXIMA,
    NUM_TRAFFIC,
    Traffic,
)


def lookup_rates(hardware: HardwareProfile) -> LookupRates:
    """Return the rates of a machine."""
    gpu = hardware.gpu
    return LookupRates(
        latency=gpu.kernel_latency,
        forward_latency=gpu.forward_latency or gpu.kernel_latency,
        lookup_bandwidth=gpu.memory_bandwidth * gpu.lookup_efficiency,
        update_bandwidth=gpu.memory_bandwidth * gpu.update_efficiency,
        gather_bandwidth=gpu.gather_bandwidth or gpu.l2_bandwidth,
        backward_latency=gpu.backward_latency or BACKWARD_KERNELS * gpu.kernel_latency,
        gradient_time=gpu.gradient_time,
        sort_rate=gpu.sort_rate,
        sort_latency=gpu.sort_latency,
        uvm_bandwidth=hardware.host.uvm_bandwidth,
        overlap=gpu.overlap,
        lookup_time=gpu.lookup_time,
        row_read_time=gpu.row_read_time,
        row_update_time=gpu.row_update_time,
        bag_time=gpu.bag_time,
        forward_turn_time=gpu.forward_turn_time,
        backward_turn_time=gpu.backward_turn_time,
        forward_knots=gpu.forward_correction.array,
        backward_knots=gpu.backward_correction.array,
    )


def forward_time(traffic: NDArray[np.float64], hardware: HardwareProfile) -> NDArray[np.float64]:
    """Seconds of the forward kernel for summed traffic of shape (..., NUM_TRAFFIC).

    Zero where there is nothing to look up.
    """
    return kernel_times(traffic, lookup_rates(hardware), backward=False)


def backward_time(traffic: NDArray[np.float64], hardware: HardwareProfile) -> NDArray[np.float64]:
    """Seconds of the fused backward for summed traffic of shape (..., NUM_TRAFFIC)."""
    return kernel_times(traffic, lookup_rates(hardware), backward=True)


def kernel_times(
    traffic: NDArray[np.float64], rates: LookupRates, *, backward: bool
) -> NDArray[np.float64]:
    """Seconds of one kernel for traffic of shape (..., NUM_TRAFFIC); see ``kernels.times``."""
    rows = np.ascontiguousarray(traffic, dtype=np.float64).reshape(-1, NUM_TRAFFIC)
    return times.lookup_times(rows, rates, backward).reshape(traffic.shape[:-1])


def combine(
    traffic: NDArray[np.float64], group: NDArray[np.intp], num_groups: int
) -> NDArray[np.float64]:
    """Add up the traffic of shards, shape (shards, NUM_TRAFFIC), by the kernel that serves them."""
    total = np.zeros((num_groups, NUM_TRAFFIC))
    for column, values in enumerate(traffic.T):
        total[:, column] = np.bincount(group, values, num_groups)
    for column in MAXIMA:
        total[:, column] = 0.0
        np.maximum.at(total[:, column], group, traffic[:, column])
    return total


def embedding_estimate(
    tables: tuple[EmbeddingTable, ...],
    *,
    num_samples: int,
    optimizer: Optimizer,
    hardware: HardwareProfile,
    output_type: DataType = DataType.FP32,
    share: float = 1.0,
) -> tuple[Estimate, Estimate]:
    """Estimate one TBE kernel over whole tables: forward, and backward with the optimizer.

    ``share``: of what they move, where the kernel has but a part of the tables or their ids.
    """
    shards = LookupShards.of([
        LookupShard.whole(table, num_samples, (table.compute_kernels or (ComputeKernel.FUSED,))[0])
        for table in tables
    ])
    caches = gpu_caches(hardware.gpu)
    rows = shard_traffics(shards, optimizer=optimizer, output_type=output_type, caches=caches)
    total = combine(rows, np.zeros(len(rows), dtype=np.intp), 1)
    total *= [1.0 if column in MAXIMA else share for column in Traffic]
    lookups, columns = float(total[0, Traffic.LOOKUPS]), [table.embedding_dim for table in tables]

    def estimate(seconds: Seconds, bound_by: Bound, *, backward: bool) -> Estimate:
        covered = is_lookup_covered(hardware, backward=backward, lookups=lookups, columns=columns)
        return Estimate(
            seconds=seconds, bound_by=bound_by, source=Source.ROOFLINE, extrapolated=not covered
        )

    forward = float(forward_time(total, hardware)[0])
    backward = float(backward_time(total, hardware)[0])
    return (
        estimate(forward, forward_bound(total[0], hardware), backward=False),
        estimate(backward, backward_bound(total[0], hardware), backward=True),
    )


def forward_bound(traffic: NDArray[np.float64], hardware: HardwareProfile) -> Bound:
    """Return what bounds the forward kernel of that traffic."""
    rates = lookup_rates(hardware)
    idle_turns = LookupTimes(traffic[np.newaxis], rates).idle_turns(0, 0)
    terms = {
        Bound.HBM_BANDWIDTH: traffic[Traffic.FORWARD_HBM] / rates.lookup_bandwidth,
        Bound.L2_BANDWIDTH: traffic[Traffic.FORWARD_L2] / rates.gather_bandwidth,
        Bound.LONGEST_BAG: traffic[Traffic.CHAIN],
        Bound.HOST_MEMORY: traffic[Traffic.FORWARD_UVM] / rates.uvm_bandwidth,
        Bound.KERNEL_LATENCY: rates.forward_latency,
        Bound.IDS: traffic[Traffic.KEYS] * rates.lookup_time,
        Bound.ROW_LATENCY: traffic[Traffic.ROWS] * rates.row_read_time,
        Bound.BAGS: traffic[Traffic.BAGS] * rates.bag_time,
        Bound.WIDEST_TABLE: idle_turns * rates.forward_turn_time,
    }
    return max(terms, key=terms.__getitem__)


def backward_bound(traffic: NDArray[np.float64], hardware: HardwareProfile) -> Bound:
    """Return what bounds the backward kernels of that traffic."""
    rates = lookup_rates(hardware)
    idle_turns = LookupTimes(traffic[np.newaxis], rates).idle_turns(0, 0)
    terms = {
        Bound.HBM_BANDWIDTH: traffic[Traffic.BACKWARD_HBM] / rates.update_bandwidth,
        Bound.L2_BANDWIDTH: traffic[Traffic.BACKWARD_L2] / rates.gather_bandwidth,
        Bound.IDS: traffic[Traffic.LOOKUPS] * rates.gradient_time,
        Bound.KEY_SORT: traffic[Traffic.KEYS] / rates.sort_rate,
        Bound.HOST_MEMORY: traffic[Traffic.BACKWARD_UVM] / rates.uvm_bandwidth,
        Bound.KERNEL_LATENCY: rates.backward_latency,
        Bound.ROW_LATENCY: traffic[Traffic.UPDATES] * rates.row_update_time,
        Bound.BAGS: LINEAR_BAG_RATIO * traffic[Traffic.BAGS] * rates.bag_time,
        Bound.WIDEST_TABLE: idle_turns * rates.backward_turn_time,
    }
    return max(terms, key=terms.__getitem__)


def weight_gradient_time(
    traffic: NDArray[np.float64], hardware: HardwareProfile
) -> NDArray[np.float64]:
    """Seconds of ``grad_indice_weights`` for summed traffic of shape (..., NUM_TRAFFIC).

    The kernel in which the backward of a weighted lookup makes the gradients of the ids' weights:
    it gathers every id's row, as the forward does, and reduces its product with the gradient over
    the lanes of a warp, which takes ``WEIGHT_GRADIENT_RATIO`` times as long.
    """
    rows = np.ascontiguousarray(traffic, dtype=np.float64).reshape(-1, NUM_TRAFFIC)
    seconds = times.weight_gradient_times(rows, lookup_rates(hardware))
    return seconds.reshape(traffic.shape[:-1])


def lookup_time(
    traffic: NDArray[np.float64], hardware: HardwareProfile, *, weighted: NDArray[np.bool_] | bool
) -> NDArray[np.float64]:
    """Seconds of all kernels of a lookup, forward and backward, for traffic as summed.

    ``weighted``: whether ids have weights, shape as the traffic's but for the last axis.
    """
    both = forward_time(traffic, hardware) + backward_time(traffic, hardware)
    return both + weight_gradient_time(traffic, hardware) * weighted
