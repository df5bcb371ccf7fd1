"""Plan a workload file from Python: the plan, how sure its step time is, and other batch sizes.

python examples/plan_by_api.py
"""

from dataclasses import replace
from pathlib import Path

import planner

TABLES = Path(__file__).with_name("tables.yaml")
MACHINE = {"gpus": 4, "hardware": "a100-sxm-80gb"}
SEARCH = {"seed": 0, "max_plans": 500}  # counted, not timed: the same plan on every run
MS = 1e-3


def main() -> None:
    """Print what was planned."""
    workload = planner.load_workload(TABLES)
    planned = planner.plan(workload, **MACHINE, **SEARCH)
    report = planned.report
    low, high = report.interval
    print(
        f"{report.step_time / MS:.2f} ms a step ({low / MS:.2f} to {high / MS:.2f} ms, 90%), "
        f"{report.samples_per_second / 1e6:.2f} M samples/s"
    )
    for table in planned.plan.tables:
        ranks = sorted({shard.rank for shard in table.shards})
        print(f"  {table.table:<14}{table.sharding_type:<20}{table.compute_kernel:<8}ranks {ranks}")

    print("samples per GPU, and what a step takes:")
    for samples in (2048, 8192, 32768):
        other = planner.plan(replace(workload, local_batch_size=samples), **MACHINE, **SEARCH)
        print(f"  {samples:>6,}  {other.report.step_time / MS:6.2f} ms")

    planned.save("plan.json")
    print("wrote plan.json; `planner explain plan.json` says why")


if __name__ == "__main__":
    main()
