"""``planner inspect`` of logs, as typed: what users say of columns, and what it then says."""

import signal
from pathlib import Path

import pytest
from command_runs import Command

from planner.files.workload_reading import load_workload


@pytest.fixture
def log(directory: Path) -> str:
    """2,000 lines: a user, one of 40 items in lists, a raw id, a site in hex, a label, a time."""
    lines = ["user,items,sku,site,click,time"]
    lines += [
        f"{n % 90},{n % 40}|{n * n % 40}|0,{10**9 + n % 300 * 7},{n % 60:08x},{n % 2},"
        f"{17 * 10**8 + n}"
        for n in range(2000)
    ]
    (directory / "log.csv").write_text("\n".join(lines))
    return "log.csv"


def test_the_first_screen_has_80_columns_whatever_names_are(run: Command, directory: Path) -> None:
    name = "a_very_long_name_of_a_feature_of_which_there_are_others_{}"
    header = ",".join(name.format(n) for n in range(4))
    rows = "".join(f"{n % 900 * 10**6},{n % 7},x{n % 9},{n % 5}.5\n" for n in range(3000))
    (directory / "log.csv").write_text(f"{header}\n{rows}")
    done = run("inspect", "log.csv")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    assert "a_very_lo…others_0" in done.out
    assert "a_very_lo…others_2" in done.out


def test_what_is_said_of_columns_is_heeded(run: Command, log: str) -> None:
    said = (
        "--exclude", "user", "--as", "click=ids", "--rows", "items=1_000", "--hash", "sku=2**6",
        "--padding", "items=0", "--share", "places=site", "--embedding-dim", "16", "-o", "new.yaml",
    )  # fmt: skip
    assert run("inspect", log, *said).code == 0
    tables = {table.name: table for table in load_workload("new.yaml").tables}
    assert {name: table.num_embeddings for name, table in tables.items()} == {
        "items": 1000, "sku": 64, "places": 60, "click": 2,
    }  # fmt: skip
    assert tables["places"].feature_names == ("site",)
    ids = [n for k in range(2000) for n in (k % 40, k * k % 40) if n]
    assert tables["items"].pooling_factor == pytest.approx(len(ids) / 2000, rel=1e-4)


def test_json_has_kinds_and_everything_else(run: Command, log: str) -> None:
    data = run("inspect", log, "--json", "--batch-size", "100").data
    kinds = {column["name"]: column["kind"] for column in data["columns"]}
    assert kinds == {
        "user": "ids", "items": "sequence", "sku": "raw ids", "site": "category",
        "click": "label", "time": "time",
    }  # fmt: skip
    sku = next(table for table in data["tables"] if table["name"] == "sku")
    assert (sku["kind"], sku["num_distinct"], sku["weight_bytes"]) == ("raw ids", 300, 300 * 64 * 4)
    low, high = sku["unique_interval"]
    assert low <= sku["unique_rows"] <= high


def test_names_separators_and_shuffling(run: Command, directory: Path) -> None:
    rows = "".join(f"{n // 50}\t{n % 3};{n % 5}\n" for n in range(2000))
    (directory / "log.tsv").write_text(rows)
    words = ("inspect", "log.tsv", "--columns", "a,b", "--separator", "b=;", "--batch-size", "100")
    done = run(*words, "--as", "a=ids")
    assert "where training shuffles, `--shuffle`" in done.err
    shuffled = run(*words, "--as", "a=ids", "--shuffle", "--json").data
    a, b = shuffled["tables"]
    assert (a["name"], b["pooling_factor"]) == ("a", 2.0)
    assert a["unique_rows"] > 30  # of 40; consecutive batches have 2


def test_ctrl_c_leaves_what_was_counted(
    run: Command, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(self: object, done: int, total: int | None) -> None:
        del self, total
        if done == 500:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("planner.cli.inspect_progress.CountingLine.show", press)
    done = run("inspect", log, "--batch-size", "250")
    assert done.code == 130
    assert "interrupted: these are the first 500 samples" in done.err
    assert "500 samples in 2 batches of 250" in done.out


def test_a_page(run: Command, log: str) -> None:
    pytest.importorskip("vl_convert")
    done = run("inspect", log, "--html", "page.html")
    assert (done.code, "Wrote page.html" in done.err) == (0, True)
    assert "How often rows are hit" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--as", "sku=idz"), "`idz` is none of ids, raw"),
        (("--as", "zipf"), "is no NAME=VALUE"),
        (("--rows", "sku=0"), "a whole number from 1"),
        (("--hash", "sku=2**99"), "a whole number from 1"),
        (("--padding", "x"), "is not a whole number"),
        (("--delimiter", "ab"), "is not one character"),
        (("-", "--json"), "standard input goes without other files"),
        (("-o", "-", "--json"), "would be mixed"),
    ],
)
def test_what_cannot_be_said(run: Command, log: str, words: tuple[str, ...], message: str) -> None:
    done = run("inspect", log, *words)
    assert done.code == 2
    assert message in done.err + done.out


def test_a_column_that_there_is_not_has_a_neighbour(run: Command, log: str) -> None:
    done = run("inspect", log, "--tables", "usr")
    assert done.code == 3
    assert "no column `usr`" in done.err
    assert "did you mean `user`?" in done.err


def test_what_is_written_says_where_rows_come_from(run: Command, log: str) -> None:
    written = run("inspect", log, "-o", "-", "-q").out
    assert "# rows of user, items: the largest id + 1" in written
    assert "# rows of sku, site: distinct ids + Chao1's estimate of unseen ones" in written
