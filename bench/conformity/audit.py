"""The audit of the synthesized steps against TorchRec: ``python -m bench.conformity.audit``.

What was found when both sides were read (torchrec 1.9.2, fbgemm_gpu 1.8.0, torch 2.13), how far off
it left a predicted step or its memory, what the step has now, and the test and the cells of the
matrix that keep it. Writes ``bench/results/conformity_audit.md``.
"""

import sys
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parents[1] / "results" / "conformity_audit.md"
_STEP = "tests/costmodel/step/"
_GROUPS, _OPTIMIZER = f"{_STEP}test_group_kernels.py", f"{_STEP}test_optimizer.py"
_SPARSE, _KERNELS = f"{_STEP}test_sparse.py", "tests/costmodel/kernels/test_embedding.py"
_STORAGE = "tests/costmodel/memory/test_storage.py"


class Audited(NamedTuple):
    """One row of the audit."""

    row: str
    what: str
    before: str
    """Predicted less real, as a share of the step or of memory, by the audit's examples."""
    after: str
    file: str
    test: str
    cells: str
    """Cells of the matrix that show it: their names contain this; empty: only GPUs have it."""


AUDIT = (
    Audited("1", "dense optimizer beside data_parallel tables", "-1% (SGD) to -38% (Adam -62%)",
            "one turn of the loop for each parameter; `foreach: true` offered by `explain`",
            _OPTIMIZER, "test_a_replicated_table_sends_all_parameters_through_the_loop",
            "optimizer"),
    Audited("2", "FP8 codecs where outputs are summed; INT8 there", "-12 to -20%",
            "FP16 forward, BF16 backward; INT8 refused",
            _GROUPS, "test_fp8_falls_back_to_two_bytes_where_outputs_are_summed",
            "row_wise, fp8 codecs"),
    Audited("3", "type of data_parallel gradients", "+4 to +21% (FP16)", "the table's",
            _OPTIMIZER, "test_replicated_gradients_have_the_type_of_their_table",
            "data_parallel, fp16"),
    Audited("4", "lookups: one for fused, UVM and cached; sum and mean apart", "+19 to -14%",
            "grouped by (dense, data type, pooling)",
            _GROUPS, "test_one_lookup_serves_tables_in_hbm_host_memory_and_cache", "all kernels"),
    Audited("5", "FP16 and BF16 are clamped, then cast", "-1 to -7%", "two kernels",
            _GROUPS, "test_half_precision_is_clamped_before_it_is_cast", "fp16 codecs"),
    Audited("6", "outputs of several lookups are concatenated", "-1 to -7%",
            "on ranks that have several",
            _GROUPS, "test_lookups_are_concatenated_only_on_ranks_that_have_several",
            "fp16 and fp32"),
    Audited("7", "gradient of per-sample weights", "-3 to -8%",
            "an operator of its own, 1.85 times the forward as measured",
            _GROUPS, "test_weights_of_ids_get_a_gradient_which_gathers_all_rows_again",
            "weighted"),
    Audited("8", "state of UVM tables kept once per row", "+2 to +7%", "in HBM",
            _KERNELS, "test_state_of_one_number_a_row_is_updated_in_hbm_wherever_the_row_is", ""),
    Audited("9", "prefetch kernels of the UVM cache", "-2 to -7%",
            "364 bytes an id and 384 a row in the forward; launches left out. H100, 1.05 M ids: "
            "-9% before, -1% now",
            _KERNELS, "test_a_uvm_cache_is_prefetched_whether_or_not_ids_miss", ""),
    Audited("10", "copies around unpooled exchanges", "+5 to -6%", "permute, select, add to zeros",
            _GROUPS, "test_unpooled_rows_are_permuted_not_concatenated", "unpooled"),
    Audited("11", "outputs of several groups are joined, gradients separated", "-1%",
            "on GPUs, too",
            _SPARSE, "test_a_gpu_joins_groups_too_and_copies_what_column_shards_reorder",
            "column_wise + row_wise"),
    Audited("12", "hierarchical gradients are split by node", "+6% (host-bound)", "by node",
            _GROUPS, "test_gradients_across_nodes_are_split_by_node", "table_row_wise, 2 x 2"),
    Audited("13", "passes of foreach optimizers", "-1 to -2%", "13 (Adagrad) and 18 (Adam)",
            _OPTIMIZER, "test_foreach_moves_the_parameters_once_for_each_operand", ""),
    Audited("14", "DDP copies weights and biases apart", "-4% (host-bound)", "two copies",
            _GROUPS, "test_the_reducer_copies_weights_and_biases_apart", "table_wise"),
    Audited("15", "mean pooling of row shards", "-1 to -3%", "the module divides, both ways",
            _GROUPS, "test_a_module_with_mean_pooled_row_shards_divides_all_its_columns",
            "row_wise, mean"),
    Audited("16", "mean pooling of whole tables", "-1%", "a scaled copy of the gradients",
            _KERNELS, "test_mean_pooling_scales_a_copy_of_the_gradients", ""),
    Audited("17", "type of gradients that enter the backward", "+0 to +3% (FP16 outputs)",
            "that of the outputs", _KERNELS, "test_gradients_have_the_type_of_the_outputs", ""),
    Audited("18", "hierarchical ids are staggered", "-2% (host-bound)", "one more permutation",
            _GROUPS, "test_bucketized_ids_of_nodes_are_staggered", "table_row_wise, 2 x 2"),
    Audited("19", "hierarchical gradients are divided twice", "-1%", "after each exchange",
            _GROUPS, "test_hierarchical_gradients_are_divided_after_each_exchange",
            "table_row_wise, 2 x 2"),
    Audited("20", "scales of INT8", "-1 to -3%", "1.25 bytes an element",
            _GROUPS, "test_int8_sends_scales_with_its_elements", "table_wise, int8 codecs"),
    Audited("21", "split tensors are read back", "-1% (host-bound)",
            "the host waits for each", _GROUPS,
            "test_the_host_waits_for_every_split_tensor", ""),
    Audited("22", "permutation of features", "-3 to +3%", "one a module, none where in order",
            _GROUPS, "test_every_module_permutes_its_own_features", "three modules"),
    Audited("23", "data_parallel tables of several types or poolings (found by the matrix)",
            "-1 to -10%", "a gradient each, DDP's buckets",
            _SPARSE, "test_lookup_kernels_of_replicated_tables_send_their_gradients_apart",
            "data_parallel, fp16 and fp32"),
    Audited("M1", "outputs of row shards", "+100% of them", "held once",
            _STORAGE, "test_outputs_of_summed_shards_are_held_once", ""),
    Audited("M2", "width of UVM cache rows", "-50% of the cache", "that of the widest table",
            _STORAGE, "test_a_cache_is_as_wide_as_the_widest_cached_table", ""),
    Audited("M3", "data_parallel gradients", "-50% of them", "two copies",
            _STORAGE, "test_data_parallel_looks_up_its_own_batch_and_keeps_a_dense_gradient", ""),
    Audited("M4", "batches in flight", "-50% of them", "three local, and ids three times",
            _STORAGE, "test_the_local_batch_by_hand", ""),
    Audited("M5", "sort of the backward", "none for dense kernels", "52 bytes an id for both",
            _STORAGE, "test_table_wise_by_hand", ""),
    Audited("M6", "divisors of mean pooling", "none", "two batches",
            _STORAGE, "test_mean_pooled_row_shards_keep_divisors_of_two_batches", ""),
)  # fmt: skip


class Moved(NamedTuple):
    """A published step before and after the steps were mended, with the same kernel times."""

    what: str
    measured: float
    """Milliseconds, as the next two."""
    before: float
    after: float
    why: str


BEFORE, AFTER = "7d62de1", "98db081"
"""Commits of ``published_steps.json``: lookups were refitted before the former."""
_COPIES = "one copy into DDP's buckets for each parameter (14)"
_TYPES = "gradients enter the lookups' backward in FP16 (17)"
_SOK = "operators around unpooled rows (10), less copies that SOK's sources do without"
MOVED = (
    Moved("PyTorch, 8 x A100, TF32", 5.75, 6.14, 6.16, _COPIES),
    Moved("PyTorch, 8 x A100, AMP", 3.97, 3.80, 3.91, _COPIES),
    Moved("PyTorch, 1 x A100, TF32", 22.76, 19.37, 19.37, "nothing of it is in this step"),
    Moved("PyTorch, 1 x A100, AMP", 16.30, 11.31, 11.06, _TYPES),
    Moved("PyTorch, 8 x V100, FP32", 22.76, 25.88, 25.90, _COPIES),
    Moved("PyTorch, 8 x V100, AMP", 9.47, 7.24, 7.25, _COPIES),
    Moved("PyTorch, 1 x V100, FP32", 97.52, 98.12, 98.12, "nothing of it is in this step"),
    Moved("PyTorch, 1 x V100, AMP", 31.36, 24.85, 24.32, _TYPES),
    Moved("SOK, 8 x A100, TF32", 8.25, 8.19, 8.59, _SOK),
    Moved("SOK, 8 x A100, AMP", 6.30, 6.61, 6.30, _SOK),
    Moved("SOK, 8 x V100, FP32", 18.04, 25.09, 25.10, _SOK),
    Moved("SOK, 8 x V100, AMP", 12.10, 10.22, 10.62, _SOK),
)  # fmt: skip


def _moved(each: Moved) -> str:
    off = " | ".join(
        f"{ms:.2f} ({ms / each.measured - 1:+.1%})" for ms in (each.before, each.after)
    )
    return f"| {each.what} | {each.measured:.2f} | {off} | {each.why} |"


def text() -> str:
    """Return the committed tables."""
    lines = [
        "# The audit of the steps, row by row",
        "",
        "`python -m bench.conformity.audit`. Before: how far the predicted step was off in the",
        "audit's examples, less than real where negative (of M1 to M6, the category's bytes).",
        "Cells: of the [matrix](conformity.md); a dash where only GPUs have it.",
        "",
        "| row | what | before | now | test | cells |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row} | {what} | {before} | {after} | `{file.removeprefix('tests/')}::{test}` "
            f"| {cells or '-'} |"
            for row, what, before, after, file, test, cells in AUDIT
        ),
        "",
        "## Published steps before and after",
        "",
        f"Predicted at {BEFORE} and {AFTER}, ms; kernels are timed alike in both. Most rows of the",
        "table above are not in these steps; why they moved is what the predicted parts of the",
        "step (`breakdown_s`) say.",
        "",
        "| step | measured | before | after | why (row) |",
        "|---|---|---|---|---|",
        *map(_moved, MOVED),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the table."""
    RESULTS.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
