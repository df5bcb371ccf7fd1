"""The rows of ``embedding.csv`` that name their GPU, and the tables their kernels read."""

import json
from collections.abc import Mapping
from csv import DictReader

from bench.fitting.sources import DATA
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, EmbeddingTable, Pooling
from costmodel.inputs.distribution import Zipf

PROFILES = {"V100": "v100-nvlink", "NVIDIA H100 80GB HBM3": "h100-sxm"}
KERNELS = {"HBM": ComputeKernel.FUSED, "UVM/hybrid": ComputeKernel.FUSED_UVM}
CACHED_SHARE = 0.1
"""Share of the 256 M rows in all that is cached, by the README beside the measurements (NVIDIA's
recsys-examples, corelib/dynamicemb/benchmark at 3a814f8). The file says 1.0, with which no forward
could take ten times the one from HBM."""
Row = Mapping[str, str]


def measured_rows() -> list[dict[str, str]]:
    """Return the rows of lookups with a named GPU and known shapes."""
    with (DATA / "embedding.csv").open(newline="") as file:
        return [row for row in DictReader(file) if row["gpu"] in PROFILES and row["D"]]


def compute_kernel(row: Row) -> ComputeKernel:
    """Return where the row's weights are."""
    if "UVM_caching" in row["kernel"]:
        return ComputeKernel.FUSED_UVM_CACHING
    return KERNELS.get(row["kernel"].rsplit(" ", 1)[-1], ComputeKernel.FUSED)


def tables(row: Row) -> tuple[EmbeddingTable, ...]:
    """Return the tables that the row's kernel reads."""
    sizes = [row["E"]] * int(float(row["T"]))
    if not row["E"].isdigit():
        models = json.loads((DATA / "models.json").read_text(encoding="utf-8"))
        sizes = models["mlperf_dlrm_v1"]["num_embeddings"]
    skew = 1.05 if "1.05" in row["index_dist"] else 0.0
    return tuple(
        EmbeddingTable(
            name=f"t{i}",
            num_embeddings=int(size),
            embedding_dim=int(float(row["D"])),
            pooling_factor=float(row["L"]),
            data_type=DataType(row["dtype"]),
            pooling=Pooling(row["pooling"]),
            inputs=Zipf(exponent=skew),
            compute_kernels=(compute_kernel(row),),
            cache_load_factor=CACHED_SHARE,
        )
        for i, size in enumerate(sizes)
    )
