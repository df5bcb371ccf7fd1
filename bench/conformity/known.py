"""What is known to differ: cells that a CPU cannot run or show."""

_MATRICES = "FBGEMM's FP8 codec takes matrices on a CPU, and TorchRec gives it flat tensors"
_POOLED = "FBGEMM's dense lookup on a CPU always pools"
_PERMUTED = (
    "features are permuted unless those of all groups, one after another, are in the order of the "
    "batch's keys (torchrec embeddingbag.py 1648-1659): {}. The keys' order is the data's, which "
    "a workload does not have, and whether ranks follow it is no sum over tables, as all that a "
    "search times is. Host-bound steps are up to 3% shorter in order, others the same"
)
KNOWN = {
    "data_parallel, weighted": (
        "on a CPU the dense backward calls its kernels directly, and the profiler does not see "
        "the gradient of the weights"
    ),
    "table_wise, in order": _PERMUTED.format(
        "here they are, and ours permutes, as it does wherever a table is neither row_wise nor "
        "data_parallel"
    ),
    "data_parallel + row_wise, interleaved": _PERMUTED.format(
        "here they are not, and ours permutes no tables that are all row_wise or data_parallel"
    ),
    "data_parallel, unpooled": _POOLED,
    "data_parallel, three modules": _POOLED,
    **{
        f"{kind}, fp8 codecs{nodes}": _MATRICES
        for kind, nodes in (
            ("column_wise", ""),
            ("table_column_wise", ""),
            ("table_wise", ""),
            ("table_row_wise", ", 2 x 2"),
            ("grid_shard", ", 2 x 2"),
        )
    },
}
"""Cells with differences left, and why."""
