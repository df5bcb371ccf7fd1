"""Points against each other by hand, and small grids planned, kept and gone on with."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import planner
from costmodel.base.errors import InputError, UnknownNameError
from costmodel.base.units import GIB, MS
from planner.examples import example_workload
from planner.pages import document
from planner.search.search import Search
from planner.sweeping.sweep import _NOT_OF_THE_PLAN
from planner.sweeping.sweep_page import front_spec
from planner.sweeping.sweep_points import Sweep, SweepPoint
from planner.sweeping.sweep_text import cheapest_text, sweep_text, warnings

pytestmark = pytest.mark.slow


QUICK = {"sharder": "naive", "time_limit": 0.01}
GRID = {"gpus": (2, 4), "hardware": ("h100-sxm", "v100-nvlink"), **QUICK}


class Told:
    """Points that a sweep has planned, as it went on."""

    def __init__(self) -> None:
        self.points: list[SweepPoint] = []
        self.numbers: list[tuple[int, int]] = []

    def __call__(self, number: int, total: int, point: SweepPoint) -> None:
        self.points.append(point)
        self.numbers.append((number, total))


def point(name: str, gpus: int, step_ms: float | None, price: float | None = None) -> SweepPoint:
    step = None if step_ms is None else step_ms * MS
    return SweepPoint(
        hardware=name,
        world_size=gpus,
        num_nodes=1,
        local_batch_size=1000,
        price=price,
        step_time=step,
        interval=None if step is None else (step / 2, 2 * step),
        peak_memory_bytes=GIB,
        usable_bytes=2 * GIB,
        reason=None if step else "no plan fits",
        key=f"{name} {gpus}",
    )


def of(*points: SweepPoint) -> Sweep:
    return Sweep(workload="small", num_tables=4, points=points)


def test_cost_by_hand() -> None:
    # 4 GPUs of 2.5 an hour, 4,000 samples each 4 ms: 1e6 a second, so a million in 1 s of 10/3600
    one = point("h100", 4, 4.0, price=2.5)
    assert one.samples_per_second == pytest.approx(1e6)
    assert one.cost_per_million_samples == pytest.approx(10 / 3600)
    assert one.least_samples_per_second == pytest.approx(5e5)


def test_without_a_price_cost_is_gpu_hours() -> None:
    assert point("h100", 4, 4.0).cost_per_million_samples == pytest.approx(4 / 3600)


def test_the_front_leaves_out_what_another_beats_in_all_three() -> None:
    fast = point("h100", 8, 4.0, price=2.0)
    small = point("h100", 4, 4.0, price=2.0)  # half the throughput at the same cost per sample
    thrifty = point("a100", 4, 8.0, price=0.5)
    beaten = point("v100", 4, 9.0, price=1.0)
    none = point("l40s", 4, None, price=0.1)
    assert of(fast, small, thrifty, beaten, none).front == (fast, thrifty)


def test_the_line_on_the_chart_leaves_out_what_only_its_short_step_puts_on_the_front() -> None:
    wide = point("a", 8, 4.0, price=1.0)  # 2e6 a second
    quick = point("b", 2, 2.0, price=9.0)  # 1e6 a second, nine times the cost, half the step
    cheap = point("c", 4, 8.0, price=0.25)  # 0.5e6 a second, half the cost
    sweep = of(wide, quick, cheap)
    assert sweep.front == (wide, quick, cheap)
    rows = front_spec(sweep)["data"]["values"]
    assert [row["line"] for row in rows] == [True, False, True]


def test_equal_points_stay_on_the_front_together() -> None:
    first, second = point("a", 4, 4.0), point("b", 4, 4.0)
    assert of(first, second).front == (first, second)


def test_what_the_models_cannot_tell_apart_is_as_good() -> None:
    # 0.2% faster at twice the price is no reason to be on the front
    dear, cheap = point("a", 8, 6.55, price=2.0), point("b", 8, 6.56, price=1.0)
    assert of(dear, cheap).front == (cheap,)
    faster = replace(dear, step_time=6.4 * MS)
    assert of(faster, cheap).front == (faster, cheap)


def test_to_be_safe_the_slow_end_has_to_be_fast_enough() -> None:
    wide = replace(point("a", 8, 4.0, price=1.0), interval=(2e-3, 8e-3))  # 1e6 at the slow end
    narrow = replace(point("b", 8, 4.0, price=2.0), interval=(3e-3, 5e-3))
    sweep = of(wide, narrow)
    assert sweep.cheapest(1.5e6) == wide
    assert sweep.cheapest(1.5e6, safe=True) == narrow
    assert sweep.cheapest(1.9e6, safe=True) is None
    assert "2.00 M samples/s at the slow end; the most is 1.60 M" in cheapest_text(
        sweep, 2e6, safe=True
    )


def text_of(sweep: Sweep) -> str:
    return " ".join(line.plain for line in sweep_text(sweep, 500))


def test_what_was_not_measured_is_said_beside_the_choice() -> None:
    unknown = replace(point("a", 8, 4.0, price=1.0), unmeasured_share=0.97)
    assert cheapest_text(of(unknown), 2e6).endswith(" 97% of it rests on no measurement.")
    known = replace(unknown, unmeasured_share=0.4)
    assert "measurement" not in cheapest_text(of(known), 2e6)
    assert "at least 97% of the step on a rests on no" in text_of(of(unknown))
    assert "rests on" not in text_of(of(known))


def test_where_half_the_gpus_may_do_it_is_said() -> None:
    wide = replace(point("a", 8, 4.0, price=1.0), interval=(3e-3, 5e-3))
    assert cheapest_text(of(wide), 0.5e6).endswith(" Fewer may do: try `--gpus 4`.")
    assert "Fewer" not in cheapest_text(of(wide), 1.5e6)


def test_a_batch_of_all_gpus_is_divided() -> None:
    swept = planner.sweep(
        example_workload(4), gpus=(2, 4), global_batch_sizes=4096, sharder="naive", max_plans=1
    )
    assert [each.local_batch_size for each in swept.points] == [2048, 1024]
    with pytest.raises(InputError, match="cannot be divided by 4"):
        planner.sweep(example_workload(4), gpus=4, global_batch_sizes=1022, sharder="naive")
    with pytest.raises(InputError, match="not both"):
        planner.sweep(
            example_workload(4), gpus=4, global_batch_sizes=4096, local_batch_sizes=1024,
            sharder="naive",
        )  # fmt: skip


def test_the_cheapest_that_is_fast_enough() -> None:
    big = point("h100", 8, 4.0, price=2.0)  # 2e6 a second for 16
    small = point("h100", 4, 4.0, price=2.0)  # 1e6 for 8
    old = point("v100", 8, 8.0, price=0.5)  # 1e6 for 4
    sweep = of(big, small, old)
    assert sweep.cheapest(1e6) == old
    assert sweep.cheapest(1.5e6) == big
    assert sweep.cheapest(3e6) is None


def test_a_sweep_says_in_a_line_what_it_is() -> None:
    sweep = of(point("h100", 8, 4.0), point("l40s", 4, None))
    assert repr(sweep) == "<Sweep of small: 2 points, 1 with a plan, 1 on the front>"


def test_a_sweep_warns_once_of_what_points_are_warned_of() -> None:
    old = [
        replace(point("v100", gpus, 4.0), notes=("no bf16", *late))
        for gpus, late in ((2, ()), (4, ("no time",)))
    ]
    new = [replace(point("h100", gpus, 4.0), notes=("no time",)) for gpus in (2, 4)]
    batches = replace(old[0], local_batch_size=500, notes=()), replace(old[0], hardware="a100")
    none = point("v100", 8, None)
    assert warnings(of(*old, *new, none)) == ["v100: no bf16", "4 × v100; h100: no time"]
    assert warnings(of(old[0], none)) == ["all plans: no bf16"]
    assert warnings(of(old[0], *batches)) == ["2 × v100, 1,000 samples each; a100: no bf16"]
    assert warnings(of(none)) == []


def test_warnings_of_points_are_kept_in_a_few_lines(tmp_path: Path) -> None:
    workload = example_workload(4)
    workload = replace(workload, dense=replace(workload.dense, precision=planner.DataType.BF16))
    grid = {"gpus": (2, 4), "hardware": ("h100-sxm", "v100-nvlink"), "directory": tmp_path}
    swept = planner.sweep(workload, sharder="naive", max_plans=1, **grid)
    (note,) = swept.points[2].notes
    assert "has no speed of bf16 units" in note
    assert [each.notes for each in swept.points] == [(), (), (note,), (note,)]
    path, told = tmp_path / "sweep.json", Told()
    again = planner.sweep(workload, sharder="naive", max_plans=1, done=told, **grid)
    assert again == swept
    kept = json.loads(path.read_text())
    assert kept["notes"] == {note: [each.key for each in swept.points[2:]]}
    del kept["notes"]  # a file of before
    path.write_text(json.dumps(kept))
    old = planner.sweep(workload, sharder="naive", max_plans=1, done=told, **grid)
    assert [each.notes for each in old.points] == [()] * 4
    assert not told.points


def test_the_page_of_a_sweep_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "vega_bundle", lambda: "")
    warned = replace(point("v100", 2, 4.0), notes=("no bf16",))
    assert "<li>v100: no bf16" in of(warned, point("h100", 2, 4.0)).to_html()
    assert "Warnings" not in of(point("h100", 2, 4.0)).to_html()


def test_every_point_of_the_grid_is_planned_in_its_order() -> None:
    grid = {**GRID, "gpus": [2]}
    sweep = planner.sweep(example_workload(4), local_batch_sizes=(256, 512), **grid)
    got = [(p.hardware, p.local_batch_size) for p in sweep.points]
    assert got == [(name, batch) for name in grid["hardware"] for batch in (256, 512)]
    alone = planner.plan(
        replace(example_workload(4), local_batch_size=256),
        gpus=2, hardware="h100-sxm", baseline="none", **QUICK,
    )  # fmt: skip
    assert sweep.points[0].step_time == alone.report.step_time


def test_machines_may_go_by_names_of_their_own(tmp_path: Path) -> None:
    skus = {"FAST": "h100-sxm", "OLD": "v100-nvlink"}
    grid = {**GRID, "gpus": 2, "hardware": skus, "prices": {"FAST": 3, "OLD": 1}}
    named = planner.sweep(example_workload(4), directory=tmp_path, **grid)
    plain = planner.sweep(example_workload(4), **{**GRID, "gpus": 2})
    assert [(each.hardware, each.price) for each in named.points] == [("FAST", 3), ("OLD", 1)]
    assert [each.step_time for each in named.points] == [each.step_time for each in plain.points]
    kept = [planner.load_plan(tmp_path / (each.plan_file or "")) for each in named.points]
    assert [each.hardware_name for each in kept] == ["h100-sxm", "v100-nvlink"]


def test_a_sweep_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    told, workload, prices = Told(), example_workload(4), {"h100-sxm": 3, "v100-nvlink": 1}
    keep = {**GRID, "directory": tmp_path, "done": told}
    cut = planner.sweep(workload, interrupted=lambda: len(told.points) == 2, **keep)
    assert len(cut.points) == len(told.points) == 2
    whole = planner.sweep(workload, **keep)
    assert told.numbers == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert whole.points == tuple(told.points)
    again = planner.sweep(workload, prices=prices, **keep)
    assert len(told.points) == 4
    assert [replace(p, price=None) for p in again.points] == list(whole.points)
    assert [p.price for p in again.points] == [3, 3, 1, 1]
    first = planner.load_plan(tmp_path / (again.points[0].plan_file or ""))
    assert first.report.step_time == pytest.approx(again.points[0].step_time)


def test_what_a_point_is_known_by_is_the_same_in_every_process() -> None:
    search = Search()
    asked = {each.name for each in fields(search) if callable(getattr(search, each.name))}
    assert asked <= _NOT_OF_THE_PLAN  # a function is another one in every process


def test_a_point_is_planned_again_where_anything_differs_or_its_plan_is_gone(
    tmp_path: Path,
) -> None:
    told = Told()
    keep = {"gpus": [2], "directory": tmp_path, "done": told, **QUICK}
    planner.sweep(example_workload(4), **keep)
    planner.sweep(example_workload(5), **keep)
    planner.sweep(example_workload(4), seed=1, **keep)
    assert len(told.points) == 3
    planner.sweep(example_workload(4), **keep)  # the file keeps points of other sweeps, too
    assert len(told.points) == 3
    (tmp_path / (told.points[0].plan_file or "")).unlink()
    planner.sweep(example_workload(4), **keep)
    assert len(told.points) == 4


def test_a_point_without_a_plan_says_why_and_is_kept(tmp_path: Path) -> None:
    huge = planner.EmbeddingTable(name="huge", num_embeddings=10**9, embedding_dim=128)
    workload = planner.Workload(tables=(huge,), local_batch_size=512)
    told = Told()
    for _ in range(2):
        sweep = planner.sweep(
            workload, gpus=(1, 8), hardware=["a100-sxm-80gb"], time_limit=0.1,
            directory=tmp_path, done=told,
        )  # fmt: skip
        assert [p.step_time is None for p in sweep.points] == [True, False]
        reason = sweep.points[0].reason or ""
        assert reason.startswith("no plan fits")
        assert re.search(r"; enough would be `--gpus \d", reason)
        assert sweep.front == sweep.points[1:]
    assert told.numbers == [(1, 2), (2, 2)]


def test_what_makes_tables_fit_is_a_point_and_kept(tmp_path: Path) -> None:
    large = planner.EmbeddingTable(name="large", num_embeddings=10**9, embedding_dim=64)
    told = Told()
    workload = replace(example_workload(3), tables=(*example_workload(3).tables, large))
    grid = {"gpus": [2, 4], "hardware": "h100-sxm", "max_plans": 3, "directory": tmp_path}
    found = planner.sweep(workload, **grid, done=told)
    # 2 x 80 GB hold half of 256 GB, and 4 hold it
    assert [(p.world_size, p.change) for p in found.points] == [
        (2, ""), (2, "1 table cached"), (2, "1 table in fp16"), (4, ""),
    ]  # fmt: skip
    assert [p.step_time is None for p in found.points] == [True, False, False, False]
    cached = found.points[1]
    assert cached.setting == "compute_kernels: [fused, fused_uvm_caching] for large"
    assert cached in found.front
    text = "\n".join(str(line) for line in sweep_text(found, 120))
    assert text.count("No plan for") == 1
    assert f"With 1 table cached: write {cached.setting}." in text
    assert told.numbers == [(1, 2), (2, 2)]
    assert planner.sweep(workload, **grid, done=told) == found
    assert len(told.points) == 2
    (tmp_path / (cached.plan_file or "")).unlink()
    assert planner.sweep(workload, **grid, done=told) == found
    assert len(told.points) == 3


def test_points_have_the_expected_step_however_short_the_limit() -> None:
    sweep = planner.sweep(example_workload(40), gpus=[16], sharder="naive", time_limit=0.0)
    (only,) = sweep.points
    assert only.interval is not None
    assert only.step_time is not None
    assert only.interval[0] < only.step_time < only.interval[1]


def test_sweeps_in_one_folder_keep_the_points_of_each_other(tmp_path: Path) -> None:
    keep = {"directory": tmp_path, **QUICK}
    other: list[planner.Sweep] = []

    def meanwhile(*_: object) -> None:
        if not other:
            other.append(planner.sweep(example_workload(4), gpus=[4], **keep))

    planner.sweep(example_workload(4), gpus=[2, 8], done=meanwhile, **keep)
    kept = json.loads((tmp_path / "sweep.json").read_text())
    assert [each["world_size"] for each in kept["points"]] == [2, 8]
    assert [each["world_size"] for each in kept["others"]] == [4]


def test_new_prices_are_kept_although_nothing_is_planned(tmp_path: Path) -> None:
    keep = {"gpus": [2], "hardware": "h100-sxm", "directory": tmp_path, **QUICK}
    planner.sweep(example_workload(4), **keep)
    sweep = planner.sweep(example_workload(4), prices={"h100-sxm": 3.0}, **keep)
    kept = json.loads((tmp_path / "sweep.json").read_text())
    assert kept["points"][0]["price_per_gpu_hour"] == sweep.points[0].price == 3.0


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "not the file of a sweep"), ('{"schema_version": 9, "points": []}', "schema_version")],
)
def test_another_file_of_that_name_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(InputError, match=said):
        planner.sweep(example_workload(4), gpus=[2], directory=tmp_path)
    assert (tmp_path / "sweep.json").read_text() == text


def test_a_plan_file_is_looked_for_in_the_folder_only(tmp_path: Path) -> None:
    told = Told()
    keep = {"gpus": [2], "directory": tmp_path, "done": told, **QUICK}
    swept = planner.sweep(example_workload(4), **keep)
    path = tmp_path / "sweep.json"
    data = json.loads(path.read_text())
    data["points"][0]["plan_file"] = "/etc/hostname"
    path.write_text(json.dumps(data))
    again = planner.sweep(example_workload(4), **keep)
    assert len(told.points) == 2
    assert [p.plan_file for p in again.points] == [p.plan_file for p in swept.points]


def test_prices_are_for_every_machine_or_for_none() -> None:
    with pytest.raises(InputError, match="no price for `v100-nvlink`"):
        planner.sweep(example_workload(4), prices={"h100-sxm": 2.0}, **GRID)
    with pytest.raises(UnknownNameError, match="h100"):
        planner.sweep(example_workload(4), gpus=[2], prices={"h100": 2.0})
    with pytest.raises(InputError, match="more than 0"):
        planner.sweep(example_workload(4), gpus=[2], prices={"h100-sxm": 0.0})


def test_a_grid_with_a_number_of_gpus_that_no_nodes_hold_is_refused_before_work() -> None:
    with pytest.raises(InputError, match="9 GPUs"):
        planner.sweep(example_workload(4), gpus=[2, 9])


def test_one_machine_size_and_batch_are_a_grid() -> None:
    found = planner.sweep(
        example_workload(4), gpus=2, hardware="a100-sxm-80gb", local_batch_sizes=512,
        sharder="naive", max_plans=1,
    )  # fmt: skip
    (only,) = found.points
    assert (only.world_size, only.hardware, only.local_batch_size) == (2, "a100-sxm-80gb", 512)


def test_a_grid_may_be_numpys() -> None:
    arrays = {"gpus": np.array([2, 4], np.uint32), "local_batch_sizes": np.array([64])}
    swept = planner.sweep(example_workload(), **GRID | arrays)
    assert swept == planner.sweep(example_workload(), **GRID | {"local_batch_sizes": (64,)})


def test_rows_for_pandas() -> None:
    pytest.importorskip("pandas")
    frame = of(point("h100", 8, 4.0), point("l40s", 4, None)).to_dataframe()
    assert list(frame["hardware"]) == ["h100", "l40s"]
    assert frame["step_time_s"].isna().tolist() == [False, True]


def test_groups_are_an_axis_that_is_kept_with_its_points(tmp_path: Path) -> None:
    groups = [planner.Grouping(group_size="auto"), planner.Grouping(group_size=3)]
    asked = {**GRID, "gpus": 4, "hardware": "h100-sxm", "groups": groups, "directory": tmp_path}
    workload = example_workload(6)
    chosen, refused = planner.sweep(workload, **asked).points
    assert (chosen.replica_group, refused.replica_group) == ("auto", "3")
    assert refused.reason is not None
    assert "no groups of 3" in refused.reason
    assert planner.sweep(workload, **asked).points == (chosen, refused)
    whole = planner.sweep(workload, **{**asked, "groups": ()}).points
    assert [each.replica_group for each in whole] == [""]
    assert whole[0].key != chosen.key


def test_points_of_groups_have_names_of_their_own() -> None:
    plain = point("a", 8, 2.0)
    grouped = replace(plain, replica_group="4", group_size=4, notes=("careful",), key="4")
    found = replace(plain, replica_group="auto", group_size=2, key="auto")
    sweep = of(plain, grouped, found, replace(grouped, step_time=None, interval=None, key="none"))
    assert warnings(sweep) == ["8 × a, 1,000 samples each, groups of 4: careful"]
    rows = [row["group_size"] for row in sweep.to_dict()["points"]]
    assert rows == [None, 4, 2, 4]
    text = "\n".join(line.plain for line in sweep_text(sweep, 120))
    assert "auto: 2" in text
