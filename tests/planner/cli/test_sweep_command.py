"""``planner sweep`` as people run it."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.cli.sweep_command import parse_rate
from planner.environment.settings import parse_multiple

pytestmark = pytest.mark.slow


GRID = ("sweep", "tables.yaml", "--gpus", "2", "--hardware", "h100-sxm,a100-sxm-80gb")
QUICK = ("--sharder", "naive", "--time-limit", "10ms")
PRICES = ("--price", "h100-sxm=3,a100-sxm-80gb=1.5")


def test_the_table_the_front_and_the_cheapest(run: Callable) -> None:
    done = run(*GRID, *QUICK, *PRICES, "--local-batch", "1k,2k", "--samples-per-second", "100k")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "small: 4 tables · 4 points"
    assert "Cost/M samples" in lines[2]
    assert sum(line.startswith("*") and "sxm" in line for line in lines) >= 1
    assert "Cheapest for 100 k samples/s: 2 × a100-sxm-80gb" in done.out
    assert "4 of 4" in done.err
    assert max(map(len, lines)) <= 100


def test_json_names_the_cheapest_by_its_key(run: Callable) -> None:
    data = run(*GRID, *QUICK, *PRICES, "--samples-per-second", "1e3", "--json", "-q").data
    assert data["schema_version"] == 2
    assert data["cost_unit"] == "price"
    (cheapest,) = [p for p in data["points"] if p["key"] == data["cheapest"]["key"]]
    assert (cheapest["hardware"], cheapest["world_size"]) == ("a100-sxm-80gb", 2)
    for point in data["points"]:
        rate = point["global_batch_size"] / point["step_time_s"]
        assert point["samples_per_s"] == pytest.approx(rate)


def test_csv_has_a_line_for_every_point(run: Callable) -> None:
    done = run(*GRID, *QUICK, "--csv", "-", "-q")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["world_size"] for row in rows] == ["2", "2"]
    assert "points" in done.err  # the table goes where the CSV does not


def test_a_folder_is_made_and_gone_on_with(run: Callable, directory: Path) -> None:
    first = run(*GRID, *QUICK, "-o", "kept")
    again = run(*GRID, *QUICK, "-o", "kept", "--local-batch", "1k,2k")
    assert "2 of 2" in first.err
    assert again.err.count(" of 4") == 2
    assert len(list((directory / "kept").iterdir())) == 1 + 4


def test_a_file_is_no_folder(run: Callable, directory: Path) -> None:
    (directory / "kept").write_text("")
    done = run(*GRID, *QUICK, "-o", "kept")
    assert done.code == 3
    assert "kept: this is a file, not a folder" in done.err
    assert "hint: name a folder" in done.err


def test_asking_for_more_than_any_machine_trains(run: Callable) -> None:
    done = run(*GRID, *QUICK, "--samples-per-second", "1G")
    assert done.code == 4
    assert "Nothing trains 1.00 G samples/s; the most is" in done.out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--price", "h100-sxm"), "`h100-sxm` is not a price"),
        (("--price", "h100-sxm=2"), "no price for `a100-sxm-80gb`"),
        (("--local-batch", "2x"), "`2x` is not a number"),
        (("--samples-per-second", "many"), "`many` is not a rate"),
        (("--max-plans", "5", "--time-limit", "1s"), "--max-plans goes without"),
        (("--hardware", "h100-sxm,"), "an empty name"),
        (("-o", "-"), "a folder is needed, not standard output"),
        (("--hardware", "h100-smx"), "did you mean `h100-sxm`"),
        (("--sku", "GTT=h100-smx"), "did you mean `h100-sxm`"),
        (("--sku", "h100-sxm"), "is not a SKU and its profile; write `GTT=h100-sxm`"),
        (("--backend", "dask"), "`dask` needs an address"),
        (("--address", "127.0.0.1:8786"), "`loky` takes no address"),
        (("--backend", "ray", "--address", "x:1", "--jobs", "2"), "--jobs is of --backend loky"),
    ],
)
def test_bad_flags(run: Callable, flags: tuple[str, ...], said: str) -> None:
    done = run(*GRID, *flags)
    assert done.code in {2, 3}
    assert said in done.err


def test_numbers_by_hand() -> None:
    assert parse_multiple("2k") == 2048
    assert parse_multiple("1M") == 2**20
    assert parse_multiple("4096") == 4096
    assert parse_rate("5M") == 5e6
    assert parse_rate("2.5k") == 2500
