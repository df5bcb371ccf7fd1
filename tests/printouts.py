"""Printouts of planner statistics as TorchRec 1.9.2 sets them, made by hand."""

from collections.abc import Sequence

HEAD = (
    "FQN", "Sharding", "Compute Kernel", "Perf (ms)", "Storage (HBM, DDR, SSD)",
    "Cache Load Factor", "Sum Pooling Factor", "Sum Num Poolings", "Num Indices", "Output",
    "Weighted", "Sharder", "Features", "Emb Dim (CW Dim)", "Hash Size", "Ranks",
)  # fmt: skip
RANKS = ("Rank", "HBM (GB)", "DDR (GB)", "Perf (ms)", "Input (MB)", "Output (MB)", "Shards")
TABLE = {
    "FQN": "sparse.ebc.item", "Sharding": "TW", "Compute Kernel": "fused", "Perf (ms)": "1 (1,0)",
    "Storage (HBM, DDR, SSD)": "(1.0 GB, 0.0 GB, 0.0 GB)", "Cache Load Factor": "None",
    "Sum Pooling Factor": "2.5", "Sum Num Poolings": "1.0", "Num Indices": "2.5",
    "Output": "pooled", "Weighted": "unweighted", "Sharder": "EmbeddingBagCollectionSharder",
    "Features": "1", "Emb Dim (CW Dim)": "64", "Hash Size": "1000000", "Ranks": "1",
}  # fmt: skip
MEMORY = (
    "Reserved Memory:", "   HBM: 12.0 GB", "   Percent of Total HBM: 15%",
    "Planning Memory:", "   HBM: 68.0 GB, DDR: 128.0 GB", "   Percent of Total HBM: 85%", "",
    "Dense Storage (per rank): ", "   HBM: 3.0 GB, DDR: 0.0 GB", "",
    "KJT Storage (per rank): ", "   HBM: 1.0 GB, DDR: 0.0 GB",
)  # fmt: skip


def set_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows flush right, each column three wider than its longest cell."""
    widths = [max(map(len, column)) + 3 for column in zip(*rows, strict=True)]
    return [
        "".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows
    ]


def table_rows(tables: Sequence[dict[str, str]]) -> list[str]:
    """Return the table of parameters, of what each table has other than ``TABLE``."""
    made = [{**TABLE, **each} for each in tables]
    head = list(dict.fromkeys((*HEAD, *(name for each in made for name in each))))
    cells = [[each.get(name, "n/a") for name in head] for each in made]
    return set_table([head, ["-" * 6] * len(head), *cells])


def printout(
    *tables: dict[str, str], world_size: int = 8, batch: int = 256, memory: Sequence[str] = MEMORY
) -> list[str]:
    """Return the lines of a printout."""
    ranks = [
        [str(rank), "1.0 (1%)", "0.0 (0%)", "1 (1,0)", "1", "2", "TW: 1"]
        for rank in range(world_size)
    ]
    kernels = [each.get("Compute Kernel", "fused") for each in tables]
    rows = [
        "--- Planner Statistics ---", "-" * 60,
        *set_table([RANKS, ["-" * 6] * len(RANKS), *ranks]), "", "Perf: Total perf (...)", "",
        "Parameter Info:", *table_rows(tables), "", f"Batch Size: {batch}", "",
        "Compute Kernels Count:",
        *(f"   {kernel}: {kernels.count(kernel)}" for kernel in sorted(set(kernels))), "",
        *memory,
    ]  # fmt: skip
    width = max(map(len, rows)) + 4
    return ["#" * width, *(f"# {row:<{width - 3}}#" for row in rows), "#" * width]
