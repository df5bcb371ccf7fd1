"""What is chosen among plans that the models cannot tell apart: `python -m bench.tied_plans`.

Plans small and middle workloads and says of each chosen plan how it is cut and how even it is: a
reviewer passes few shards, small tables whole, few sharding types, and even memory.
"""

import argparse
from pathlib import Path
from time import process_time
from typing import Any

from bench.kept import provenance, updated
from costmodel.base.units import GIB, MIB, MS
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.files.workload_reading import load_workload
from planner.planned.planned import Planned
from planner.search.search import Search
from planner.verbs.planning import plan

WORKLOADS = Path(__file__).parent / "workloads"
OUT = Path(__file__).parent / "results" / "tied_plans.json"
SMALL = 16 * MIB
"""Tables with fewer bytes of weights are small: to cut them saves no memory."""
MAX_PLANS = 200_000


def _tiny() -> Workload:
    """Return a big table, a busy one, and small ones down to three rows."""
    rows = (3, 200, 1_000, 20_000, 100_000)
    tables = (
        EmbeddingTable(name="items", num_embeddings=20_000_000, embedding_dim=128,
                       pooling_factor=20),
        EmbeddingTable(name="history", num_embeddings=2_000_000, embedding_dim=128,
                       pooling_factor=60),
        *(EmbeddingTable(name=f"small_{each}", num_embeddings=each, embedding_dim=64)
          for each in rows),
    )  # fmt: skip
    return Workload(name="tiny", tables=tables, local_batch_size=4096)


def _forty() -> Workload:
    """Return forty tables of very different sizes, whose lookups are all alike."""
    tables = tuple(
        EmbeddingTable(name=f"t{each}", num_embeddings=int(10_000 * 1.26**each), embedding_dim=64,
                       pooling_factor=2)
        for each in range(40)
    )  # fmt: skip
    return Workload(name="forty", tables=tables, local_batch_size=2048)


def cases() -> dict[str, tuple[Workload, int]]:
    """Return workloads by name, and GPUs."""
    kept = {"dlrm_dcnv2": 8, "dlrm_mlperf": 8, "heavy_00": 4, "light_00": 4}
    files = {name: (load_workload(WORKLOADS / f"{name}.yaml"), n) for name, n in kept.items()}
    return {"tiny": (_tiny(), 4), "forty": (_forty(), 8), **files}


def described(planned: Planned) -> dict[str, Any]:
    """Return how a plan is cut and how even it is."""
    report, tables = planned.report, planned.plan.tables
    cut = [
        each.table
        for each in tables
        if len(each.block_ranks) > 1 or each.sharding_type.splits_rows
        if planned.workload.table(each.table).weight_bytes < SMALL
    ]
    held = [rank.memory.tables for rank in report.ranks]
    lookups = [rank.lookup for rank in report.ranks]
    return {
        "step_ms": round(report.step_time / MS, 3),
        "shards": sum(len(each.shards) for each in tables),
        "types": len({each.sharding_type for each in tables}),
        "small_tables_cut": len(cut),
        "memory_max_over_mean": round(max(held) * len(held) / sum(held), 2),
        "lookups_max_over_mean": round(max(lookups) * len(lookups) / sum(lookups), 2),
        "fullest_gib": round(max(held) / GIB, 1),
        "fullest_share": round(max(held) / report.usable_bytes, 3),
    }


def _search(seconds: float | None) -> Search:
    """Return a search of so many CPU seconds, or of a number of plans."""
    if seconds is None:
        return Search(max_plans=MAX_PLANS)
    return Search(time_limit=seconds, clock=process_time)


def main() -> None:
    """Plan all workloads, and keep what the plans are like under a name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--name", default="after")
    parser.add_argument("--seconds", type=float, help="CPU seconds of a plan, not counted plans")
    given = parser.parse_args()
    found = {}
    for name, (workload, gpus) in cases().items():
        made = plan(workload, gpus=gpus, hardware="h100-sxm", search=_search(given.seconds))
        found[name] = described(made)
        print(name, found[name], flush=True)
    kept = {**provenance(), "workloads": found}
    updated(given.out, lambda results: results.update({given.name: kept}))


if __name__ == "__main__":
    main()
