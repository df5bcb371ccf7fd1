"""What stashed weights cost and free, measured and predicted: `python -m bench.anchors.stashing`.

Pull request 3807 timed ``sparse_data_dist_base`` with all weights stashed and brought back at
different places (rows of ``../shared/data/torchrec_steps.csv``); nothing is fitted to it.
``over.overarch.0`` was hooked at its output there, which is where our layer 1 has its gradient.
"""

import csv
from dataclasses import replace

from bench.anchors.steps import MeasuredPlan, case_of
from bench.fitting.sources import DATA
from costmodel.base.units import GB, MS, Bytes, Seconds
from costmodel.memory.rank_memory import memory_per_rank

SOURCE, MACHINE = "#3807", "gb200-nvl72"
SITES: dict[str, int | None] = {"restore at over-arch": 1, "restore at bwd a2a": None}
"""The layer with whose gradient the weights come back, by the rows' variants."""
KEPT = "per-iteration from trace"


def stashed(case: MeasuredPlan, site: int | None) -> MeasuredPlan:
    """Return a case with the weights of all tables stashed."""
    tables = tuple(replace(table, stash_weights=True) for table in case.workload.tables)
    return replace(case, workload=replace(case.workload, tables=tables, restore_site=site))


def predicted() -> dict[str, tuple[Seconds, Bytes]]:
    """Return the predicted step and memory of every variant."""
    kept = case_of("sdd", MACHINE)
    cases = {KEPT: kept, **{name: stashed(kept, site) for name, site in SITES.items()}}
    return {
        name: (
            case.step_time(),
            max(each.total for each in memory_per_rank(case.workload, case.topology, case.plan)),
        )
        for name, case in cases.items()
    }


def measured() -> dict[str, tuple[Seconds, Bytes]]:
    """Return the same as measured."""
    with (DATA / "torchrec_steps.csv").open(newline="", encoding="utf-8") as file:
        return {
            row["variant"]: (float(row["ms_per_step"]) * MS, float(row["peak_alloc_GB"]) * GB)
            for row in csv.DictReader(file)
            if row["source_pr"] == SOURCE
        }


def main() -> None:
    """Print a row for every variant."""
    known = measured()
    for name, (seconds, held) in predicted().items():
        step, peak = known[name]
        print(
            f"{name:26} {step / MS:6.1f} ms, predicted {seconds / MS:6.1f}   "
            f"{peak / GB:6.2f} GB, predicted {held / GB:6.2f}"
        )


if __name__ == "__main__":
    main()
