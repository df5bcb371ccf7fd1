"""What is known to differ: cells that a CPU cannot run or show, and CUDA beside the CPU."""

from typing import NamedTuple

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


class OnCuda(NamedTuple):
    """Something that CPU steps do not have, or have otherwise."""

    what: str
    cpu: str
    cuda: str
    source: str


ON_CUDA = (
    OnCuda(
        "optimizer of dense parameters",
        "loop over parameters",
        "foreach, or the loop where a table is data_parallel",
        "torch/optim/optimizer.py 161-186",
    ),
    OnCuda(
        "reduce-scatter",
        "a copy before and after (gloo)",
        "in place (NCCL)",
        "torch ProcessGroupGloo; torchrec comm_ops.py 2637-2668",
    ),
    OnCuda(
        "BF16 codec",
        "replaced by FP16",
        "BF16",
        "torchrec fbgemm_qcomm_codec.py 239-252",
    ),
    OnCuda(
        "gradients of column shards next to other groups",
        "permuted as they are",
        "copied to one piece, then permuted",
        "FBGEMM permute_pooled_embedding_ops_split.cu 86-89",
    ),
    OnCuda(
        "split tensors",
        "lists, no wait",
        "made on the GPU and read back: the host blocks",
        "torchrec runtime_forwards.py 474-481, embedding_sharding.py 957-958",
    ),
    OnCuda(
        "mean pooling of whole tables",
        "divided in the lookup",
        "and a scaled copy of the gradients in the backward",
        "FBGEMM embedding_backward_split_template.cu 1037-1063",
    ),
    OnCuda(
        "lookup backward",
        "one pass over ids",
        "sort, run lengths, update",
        "FBGEMM embedding_backward_split_template.cu 852",
    ),
    OnCuda(
        "UVM and its cache",
        "host memory like any other",
        "PCIe; prefetch kernels as bytes of the forward, apart where the pipeline prefetches",
        "fbgemm_gpu split_table_batched_embeddings_ops_training.py 2983-3101",
    ),
    OnCuda(
        "divisor of mean-pooled row shards",
        "made while the batch is distributed (not modelled)",
        "the same, on the data_dist stream",
        "torchrec embeddingbag.py 2606-2699",
    ),
)
"""What the CPU's steps cannot vouch for; the 8 x V100 trace has the CUDA side of the first three,
in ``tests/costmodel/step/test_against_trace.py``."""
