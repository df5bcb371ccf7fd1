"""What embedding lookups move, as columns of a vector that adds up over the shards of a kernel."""

from enum import IntEnum


class Traffic(IntEnum):
    """Columns of a shard's traffic vector; bytes, except where said."""

    FORWARD_HBM = 0
    FORWARD_L2 = 1
    FORWARD_UVM = 2
    BACKWARD_HBM = 3
    BACKWARD_L2 = 4
    BACKWARD_UVM = 5
    LOOKUPS = 6
    """Ids looked up."""
    CHAIN = 7
    """Seconds the longest bag takes one warp; combines by maximum, not by sum."""
    ROWS = 8
    """Distinct rows."""
    KEYS = 9
    """Ids that forward checks and backward sorts. A core does neither with those of replicated
    tables: ``DenseTableBatchedEmbeddingBags`` adds every gradient to its row (fbgemm 1.8)."""
    UPDATES = 10
    """Distinct rows, each as many times as its optimizer takes longer to update one than row-wise
    Adagrad does; a core's once, or what its backward takes by costs of its own
    (``Gpu.update_costs``), in such updates."""
    BAGS = 11
    """Bags that forward checks the ids of, and whose ids backward makes linear; none of replicated
    tables, whose ids are not checked."""
    TURNS = 12
    """Ids, each as many times as a warp of a GPU takes more turns than one for its row, each of
    ``WARP_COLUMNS``. None on a core."""
    WIDEST = 13
    """The most such turns of a row of any table; combines by maximum. FBGEMM compiles a kernel for
    every number of turns, and launches the one of the widest table for all of them."""


MAXIMA = (Traffic.CHAIN, Traffic.WIDEST)
"""Columns that combine by maximum."""
NUM_TRAFFIC = len(Traffic)
BACKWARD_KERNELS = 14
"""Kernels of one fused backward: linearize, radix sort, run lengths, segments, and five fills
(counted in the 8 x V100 TorchRec trace)."""
SORT_BLOCK_KEYS: float = 2304
"""Keys of 8 bytes that one block sorts by itself, 9 for each of 256 threads (CUB's policy of a
single tile); more take six kernels, one after the other. In the 8 x V100 trace 2,304 ids are sorted
by one block in 14 us, 4,736 by six kernels in 57 us."""
LINEAR_BAG_RATIO: float = 0.32
"""Time of a bag in backward's ``linearize_index_kernel`` over that in ``bounds_check_indices``:
0.15 and 0.47 ns on a V100 (262,144 bags, 4 x V100 TorchRec traces), 0.08 and 0.26 ns on an H200
(1.7 M bags, gpu_study_h200_2026-11-26/lookup_kernels.json)."""
WEIGHT_GRADIENT_RATIO: float = 1.85
"""Time of ``grad_indice_weights`` over that of the forward, both less a kernel's latency. Fitted
(``bench.lookup_fit``): 1.9 for 8.9 M ids on an A100, 1.4 and 1.5 for two small launches
(tbe_kernels.csv)."""
