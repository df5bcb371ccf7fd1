"""What plans chosen among equal ones are like."""

import json

import planner
from bench.tied_plans import OUT, cases, described


def test_a_plan_of_whole_tables_cuts_none() -> None:
    workload, gpus = cases()["tiny"]
    made = planner.plan(workload, gpus=gpus, sharder="naive", baseline="none", max_plans=1)
    found = described(made)
    assert found["small_tables_cut"] == 0
    assert (found["shards"], found["types"]) == (len(workload.tables), 1)
    assert found["memory_max_over_mean"] >= 1


def test_no_workload_has_more_shards_or_small_tables_cut_than_before() -> None:
    kept = json.loads(OUT.read_text())
    before, after = kept["before"]["workloads"], kept["after"]["workloads"]
    for name, row in after.items():
        assert row["shards"] <= before[name]["shards"]
        assert row["small_tables_cut"] <= before[name]["small_tables_cut"]
    assert sum(row["shards"] for row in after.values()) < sum(r["shards"] for r in before.values())
