"""What columns are taken for, and why."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from costmodel.base.errors import InputError
from planner.inspection.asked import Asked
from planner.inspection.inspect import Inspection, inspect
from planner.inspection.kinds import Kind, words

RANDOM = np.random.default_rng(0)
N = 1000
ITEM = RANDOM.zipf(1.5, N) % 300


def looked_at(tmp_path: Path, asked: Asked | None = None, **columns: Any) -> Inspection:  # noqa: ANN401 - arrays
    table = pa.table({"item": ITEM, **columns})
    pq.write_table(table, tmp_path / "x.parquet")
    return inspect(tmp_path / "x.parquet", asked=asked)


@pytest.mark.parametrize(
    ("name", "values", "kind", "reason"),
    [
        ("brand", np.where(RANDOM.random(N) < 0.1, np.nan, ITEM), "ids", "whole numbers with gaps"),
        ("hist", [[1, 2]] * 500 + [[3]] * 500, "sequence", "lists of whole numbers"),
        ("site", [f"{n:08x}" for n in ITEM], "category", "texts"),
        ("price", RANDOM.random(N), "number", "not whole numbers"),
        ("dense_3", ITEM, "number", "named `dense_3`"),
        ("I4", ITEM, "number", "named `I4`"),
        ("x", ITEM - 5, "number", "negative ones, to -4"),
        ("label", ITEM % 2, "label", "2 values, named `label`"),
        ("isClicked", ITEM % 2, "label", "2 values"),
        ("rating", ITEM % 5 + 1, "label", "5 values"),
        ("click_id", ITEM % 2 + 7, "label", "2 values"),
        ("ts", 1_700_000_000 + RANDOM.integers(0, 10**6, N), "time", "2023-11-14 to 2023-11-2"),
        ("x", 1_700_000_000_000 + RANDOM.integers(0, 10**6, N), "time", "in milliseconds"),
        ("hour", 14102100 + ITEM % 24, "time", "digits of a date (YYMMDDHH)"),
        ("date", 20240101 + ITEM % 28, "time", "digits of a date (YYYYMMDD)"),
        ("time_stamp", 501 + 100 * RANDOM.integers(0, 7, N) + ITEM % 28, "time", "(MMDD)"),
        ("timeframe", RANDOM.integers(0, 10**7, N), "time", "few of them twice"),
        ("minute_of_day", ITEM % 300 + 60, "ids", "whole numbers"),
        ("hour_of_day", ITEM % 24, "ids", "whole numbers"),
        ("when", [f"2024-01-{1 + n % 28:02d} 10:00" for n in ITEM], "time", "dates or times"),
        ("id", RANDOM.permutation(N), "row number", "another one in every sample, named `id`"),
        ("x", np.arange(5, N + 5), "row number", "counts up by one"),
        ("user_id", np.arange(N), "ids", "whole numbers"),
        ("text", [f"another {n}" for n in range(N)], "row number", "another text in every sample"),
        ("x", np.full(N, 7), "constant", "one value in all samples"),
        ("x", [None] * N, "other", "no value at all"),
        ("ad", 2**41 + ITEM, "raw ids", "more than rows of any table"),
        ("sku", 214_507_000 + ITEM * 1078, "raw ids", "none below 214,508,078"),
        ("sku", ITEM * 500_000, "raw ids", "distinct ones up to"),
        ("sku", ITEM * 19, "ids", "whole numbers"),
        ("genres", ["a|b", "a", "b|c", "c"] * 250, "category", "lists of texts"),
        ("hist", ["1^2", "3", "2^3", "1"] * 250, "sequence", "lists of whole numbers"),
        ("hist", ["[1, 2]", "[3]", "[]", "[1]"] * 250, "sequence", "lists of whole numbers"),
        ("review", [f"a long text about something, which nobody reads twice, number {n}" for n in
                    range(N)], "other", "long texts"),
        ("flag", ITEM % 2 == 0, "ids", "whole numbers"),
    ],
)  # fmt: skip
def test_kinds(tmp_path: Path, name: str, values: Any, kind: str, reason: str) -> None:  # noqa: ANN401 - as above
    found = looked_at(tmp_path, **{name: values})
    (column,) = [each for each in found.columns if each.name == name]
    assert (column.kind.value, reason in column.reason) == (kind, True), column
    assert (name in {table.name for table in found.tables}) is column.kind.is_table


def test_words_of_names() -> None:
    assert words("clickTime") == words("click_time") == {"click", "time"}
    assert words("USERId2") == {"user", "id"}


def test_guesses_are_overruled(tmp_path: Path) -> None:
    time = 1_700_000_000 + RANDOM.integers(0, 100, N)
    asked = Asked(kinds={"time": Kind.RAW, "item": Kind.NUMBER})
    found = looked_at(tmp_path, asked, time=time)
    assert [(table.name, table.kind, table.num_embeddings) for table in found.tables] == [
        ("time", Kind.RAW, 100)
    ]
    found = looked_at(tmp_path, Asked(tables=("time",), kinds={"time": Kind.IDS}), time=time)
    assert [table.num_embeddings for table in found.tables] == [time.max() + 1]


def test_excluded_columns_are_not_even_read(tmp_path: Path) -> None:
    found = looked_at(tmp_path, Asked(exclude=("x",)), x=np.arange(N))
    assert [column.name for column in found.columns] == ["item"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Asked(tables=("price",)), "`price` cannot be a table: 0.5 is no whole number"),
        (Asked(kinds={"itme": Kind.IDS}), "no column `itme`"),
        (Asked(tables=("when",)), "`when` cannot be a table: time"),
        (Asked(exclude=("item", "when")), "there are no ids in it: `price` is number"),
        (Asked(rows={"item": 10}), "table `item` has 10 rows, but the file has id 299"),
    ],
)
def test_what_is_said_must_be_possible(tmp_path: Path, asked: Asked, message: str) -> None:
    when = pa.array([0] * N, pa.timestamp("s"))
    items = {"item": np.where(np.arange(N) == 0, 299, ITEM)}
    with pytest.raises(InputError, match=message):
        looked_at(tmp_path, asked, price=np.full(N, 0.5), when=when, **items)


def test_rows_hashes_and_shared_tables(tmp_path: Path) -> None:
    other = RANDOM.integers(0, 300, N)
    big = RANDOM.integers(0, 2**50, N)
    asked = Asked(
        rows={"item": 10_000}, hashed={"big": 64}, share={"both": ("a", "b")}, shuffle=True
    )
    found = looked_at(tmp_path, asked, big=big, a=other, b=[[n, n // 2] for n in ITEM.tolist()])
    tables = {table.name: table for table in found.tables}
    assert (tables["item"].num_embeddings, tables["item"].rows_from) == (10_000, "given")
    assert (tables["big"].num_embeddings, tables["big"].num_distinct) == (64, 64)
    assert tables["big"].hot_rows[0].id is None
    both = tables["both"]
    assert (both.feature_names, both.pooling_factor) == (("a", "b"), 3.0)
    assert both.num_distinct == len({*other.tolist(), *ITEM.tolist(), *(ITEM // 2).tolist()})
