"""Peers' plans of DLRM-DCNv2 beside ours, as kept."""

import json

import pytest

from bench.peers import (
    GPUS,
    RESULTS,
    SUBMITTED,
    WORKLOAD,
    problem,
    steps,
    table,
    without_host,
)
from planner.files.profiles import load_profile
from planner.files.workload_reading import load_workload
from sharders.baselines.table_row_wise import TableRowWise


def test_what_is_kept_is_of_every_point_and_no_plan_beats_its_bound() -> None:
    kept = json.loads(RESULTS.read_text())
    assert [row["gpus"] for row in kept["scaled"]] == list(GPUS)
    assert [row["source"] for row in kept["submitted"]] == [each.source for each in SUBMITTED]
    for row in (*kept["scaled"], *kept["submitted"]):
        for took in (row["hosts"], row["no_hosts"]):
            assert took["bound_s"] <= min(took.values()) * (1 + 1e-9)
        assert row["no_hosts"]["ours_s"] <= row["hosts"]["ours_s"]


def test_ours_is_never_behind_a_peer() -> None:
    kept = json.loads(RESULTS.read_text())
    for row in (*kept["scaled"], *kept["submitted"]):
        for took in (row["hosts"], row["no_hosts"]):
            assert took["ours_s"] == min(value for name, value in took.items() if name != "bound_s")


def test_the_table_says_how_far_embark_is_from_its_baseline() -> None:
    kept = json.loads(RESULTS.read_text())
    shown = table(kept)
    assert shown.count("| take no time |") == len(GPUS) + len(SUBMITTED)
    assert "1.5× in the mean of four models, at most 1.77×" in shown


def test_a_submission_has_its_settings() -> None:
    eight = SUBMITTED[0]
    given = problem(load_profile(eight.hardware), eight.gpus, 8, eight.global_batch_size)
    assert given.workload.local_batch_size == 6912
    assert given.workload.tables == load_workload(WORKLOAD).tables
    places = eight.sharder().places(given)
    # 128 columns: what a shard sends costs as much as 7 / 4 ids of a table
    assert places.sent[0] == pytest.approx(7 / 4 * 128)
    assert not any(places.replicated)


@pytest.mark.slow
def test_hosts_that_take_no_time_make_steps_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.SECONDS", 0.2)
    hardware = load_profile("h100-sxm")
    free = without_host(hardware)
    assert free.gpu == hardware.gpu
    found = steps(hardware, 8, 8, 65_536, {"theirs": TableRowWise()})
    for name, seconds in found["no_hosts"].items():
        assert 0 < seconds <= found["hosts"][name]
