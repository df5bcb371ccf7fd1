"""What TorchRec's host issues around its kernels, counted in a profiled step.

Source: the 8 x V100 TorchRec DLRM trace (``dlrm8_v100``, ``TrainPipelineSparseDist``). Launches are
those of the trace. Operators are such that they and the launches take the median CPU time of its
eight ranks, at the time per operator measured in the same trace (14 us on the main thread, 24 us
in autograd, 5 us a launch; profiler attached): Python between the kernels is in them.
"""

from typing import NamedTuple

from costmodel.base.units import MIB
from costmodel.kernels.listed_collectives import COLLECTIVE_OPS


class Issue(NamedTuple):
    """Host work of one operation: operators' worth of CPU time, and kernel launches."""

    num_ops: float
    num_launches: float
    num_listed: float = 0.0
    """Operators of a list."""


ONE_OP = Issue(1.0, 1.0)
LISTED_OP = Issue(0.0, 1.0, 1.0)
COLLECTIVE = Issue(COLLECTIVE_OPS, 1.0)
COMPILED_CALL_OPS = 3.0
"""A call of a compiled function whose guards hold: 35 to 40 us (pytorch pull request 190390) beside
the 14 us of an operator on hosts as they were measured here."""
GRAPHED_CALL = Issue(2.0, 1.0)
"""The autograd function around a CUDA graph, which copies its inputs, and the graph's launch. One
of a straight line of kernels takes the same time however many they are (NVIDIA technical blog,
Constant Time Launch for Straight-Line CUDA Graphs)."""
ZERO_GRADIENTS_OPS = 3.0
"""``zero_grad``: 93 to 118 us where a linear layer's forward takes 88, and 46 to 82 where it takes
150 on an H200's host; a layer is two operators. So 1 to 3 of them, the more on the older host."""
START_BACKWARD_OPS = 6.0
"""From the call of ``backward`` to the first function of autograd, less the loss's sum: 192 to 268
us in the trace, 300 to 440 on an H200 (gpu_study_h200_2026-11-26, profiler attached), where an
operator of backward takes 27 and 58 us by linear layers and the lookup."""
END_BACKWARD_OPS = 6.0
"""From the last function of autograd to the return of ``backward``, DistributedDataParallel's end
in it: 153 to 195 us in the trace, 190 to 490 on an H200 (as above)."""
SPLIT_BACKWARD_OPS = 4.0
SPLIT_BACKWARD_OPS_PER_FEATURE = 1 / 15
"""Backward of TorchRec's split by feature and of the concatenation in the model's order, which
narrows a gradient for every feature: 165 us of 26 features in the trace, 305 on an H200, and 450 of
52 features there (as above)."""
COPY_BATCH = Issue(10.0, 4.0)
"""``copy_batch_to_gpu`` without the loader, 200 us."""
PERMUTE_IDS = Issue(8.0, 7.0)
"""``permute_2D_sparse_data``, 147 us. Also taken for ``block_bucketize_sparse_features``."""
STACK_SPLITS = Issue(54.0, 4.0)
"""Slices of the batch, three small copies, ``stack``, Python around the splits' all-to-all: the
850 us from the permutation to the wait, with the collective."""
PLAN_EXCHANGE_OPS = 19.0
"""``.tolist()`` of the splits and the order of what will arrive: 422 us with two collectives."""
REORDER_IDS = Issue(13.0, 7.0)
"""``wait_sparse_data_dist`` up to the reordered ids, 220 us."""
SUM_LENGTHS = Issue(16.0, 3.0)
"""The rest of it without the block, 240 us."""
LOOKUP = Issue(26.0, 8.0)
"""Offsets by ``cumsum``, conversions, ``bounds_check_indices``, lookup: 416 us."""
FETCH_ROWS = Issue(10.0, 14.0)
"""``prefetch`` of a lookup's UVM cache: the ids in one order, the distinct ones sorted, those found
that are not there, and put there. Taken for the fused backward's, which sorts as much."""
STASH_CHUNK = 32 * MIB
STASH = Issue(5.0, 0.0)
"""To begin a copy of stashed weights either way: an allocation, a resized storage, two events."""
STASH_PIECE = Issue(2.0, 2.0)
"""Each 32 MiB of it, a copy and an addition that lets other streams' copies between (torchrec
1.9.2, memory_stashing.py ``chunked_copy_``)."""
SEND_OUTPUTS = Issue(13.0, 1.0)
"""``All2All_Pooled_Req`` without the collective itself, 187 us."""
SEND_SUMS_OPS = 12.0
"""``ReduceScatterBase_Req`` without it: 0.95 of the time of ``All2All_Pooled_Req`` outside of
copies and collectives, 236 and 247 us (lower quartiles of 60 profiled steps with two gloo ranks,
table_wise and row_wise in turns; column_wise: 243). Eight dispatched operators beside ten: most of
the time is Python's, which is the same on a GPU."""
GATHER_OUTPUTS = Issue(13.0, 1.0)
"""``PooledEmbeddingsAwaitable.wait``, 186 us."""
GATHER_SUMS_OPS = 7.0
"""The same where sums need no concatenation: 59 us of awaitables beside 55, and one operator where
an all-to-all has seven, 88 us (in the same steps): about 75 beside 136 us."""
ORDER_FEATURES = Issue(9.0, 1.0)
"""Rest of ``EmbeddingBagCollectionAwaitable.wait``, ``split_with_sizes`` and ``cat``: 130 us."""
SPLIT_GRADIENT_OPS = 6.0
"""``All2All_Pooled_WaitBackward`` besides a copy for every rank: 515 us on 8 ranks with the
collective. ``ReduceScatterBase_WaitBackward`` takes 113 us where that takes 135 with two copies
(steps as for ``SEND_SUMS_OPS``): the same without them."""
SCALE_GRADIENTS = Issue(3.0, 1.0)
"""``All2All_Pooled_ReqBackward``, 76 us."""
LOOKUP_BACKWARD = Issue(10.0, 14.0)
"""Fused backward, 318 us; 336 us and 15 launches for a replicated table."""
