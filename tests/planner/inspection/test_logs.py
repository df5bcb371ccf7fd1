"""Logs in the forms that people have, against independent counts."""

import bz2
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather, orc

from bench.lookalikes import LOOKALIKES, Lookalike, movielens
from costmodel.base.errors import InputError
from planner.inspection.asked import Asked
from planner.inspection.inspect import Inspection, inspect
from planner.inspection.inspection_text import inspection_data
from planner.inspection.kinds import Kind
from planner.inspection.remarks import remarks


def kinds(inspection: Inspection) -> dict[str, str]:
    return {column.name: column.kind.value for column in inspection.columns}


def plain_table(samples: int = 3000) -> pa.Table:
    random = np.random.default_rng(0)
    ids = random.zipf(1.5, samples) % 500
    lists = [ids[i : i + i % 4].tolist() for i in range(samples)]
    return pa.table({"item": ids, "hist": lists, "site": [f"s{n % 40}" for n in ids]})


def check_plain(inspection: Inspection, samples: int = 3000) -> None:
    table = plain_table(samples)
    item, hist, site = inspection.tables
    ids = table["item"].to_numpy()
    assert [each.kind for each in (item, hist, site)] == [Kind.IDS, Kind.SEQUENCE, Kind.CATEGORY]
    assert (item.num_samples, item.num_embeddings) == (samples, ids.max() + 1)
    assert item.num_distinct == len(np.unique(ids))
    lists = table["hist"].to_pylist()
    assert hist.pooling_factor == pytest.approx(np.mean([len(each) for each in lists]))
    assert hist.num_distinct == len({n for each in lists for n in each})
    assert site.num_distinct == len(set(table["site"].to_pylist()))
    assert item.hot_rows[0].lookup_share == pytest.approx(np.bincount(ids).max() / samples)


def as_text(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    lists = pa.array(["|".join(map(str, each)) for each in table["hist"].to_pylist()])
    csv.write_csv(table.set_column(1, "hist", lists), sink)
    return bytes(sink.getvalue())


def as_lines(table: pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


ENDINGS = (
    "parquet", "feather", "orc", "csv", "csv.gz", "csv.bz2", "csv.zst", "log", "jsonl", "jsonl.gz",
)  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_says_the_same(tmp_path: Path, ending: str) -> None:
    path, table = tmp_path / f"log.{ending}", plain_table()
    if ending == "parquet":
        pq.write_table(table, path, row_group_size=700)
    elif ending == "feather":
        feather.write_feather(table, path, chunksize=900)
    elif ending == "orc":
        orc.write_table(table, path)
    else:
        data = as_lines(table) if ending.startswith("jsonl") else as_text(table)
        packed_by = partial(pa.compress, codec="zstd", asbytes=True)
        pack = {"gz": gzip.compress, "bz2": bz2.compress, "zst": packed_by}
        path.write_bytes(pack.get(ending.rpartition(".")[2], bytes)(data))
    check_plain(inspect(path))


def test_a_compressed_text_needs_no_ending(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(gzip.compress(as_text(plain_table())))
    check_plain(inspect(tmp_path / "log.csv"))


def test_many_files_a_folder_and_a_glob_are_one_log(tmp_path: Path) -> None:
    table, folder = plain_table(), tmp_path / "parts" / "day=1"
    folder.mkdir(parents=True)
    for place in range(3):
        pq.write_table(table.slice(1000 * place, 1000), folder / f"part-{place}.parquet")
    (folder / "_SUCCESS").write_text("")
    paths = sorted(folder.glob("*.parquet"))
    for names in (paths, [tmp_path / "parts"], [f"{folder}/part-*.parquet"]):
        check_plain(inspect(*names))


def test_files_may_have_integers_of_other_widths(tmp_path: Path) -> None:
    pq.write_table(pa.table({"item": pa.array([1, 2], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"item": pa.array([3, 2**33], pa.int64())}), tmp_path / "b.parquet")
    (item,) = inspect(tmp_path, asked=Asked(tables=("item",), kinds={"item": Kind.IDS})).tables
    assert (item.num_distinct, item.largest_id) == (4, 2**33)


@pytest.mark.parametrize("make", [as_text, lambda table: gzip.compress(as_text(table))])
def test_standard_input(make: object) -> None:
    assert callable(make)
    done = subprocess.run(
        [sys.executable, "-m", "planner", "inspect", "-", "--json"],
        input=make(plain_table()), capture_output=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    data = json.loads(done.stdout)
    assert (data["source"], data["num_samples"], len(data["tables"])) == ("<stdin>", 3000, 3)


def right_kinds(log: Lookalike, kinds: Sequence[str]) -> int:
    # how many columns are taken for what they are; all that is no table is alike
    tables = {"ids", "raw_ids", "category", "sequence"}
    found = [kind.replace(" ", "_") for kind in kinds]
    wanted = ["raw_ids" if kind == "raw" else kind for kind in log.kinds.split()]
    return sum(
        got == kind if kind in tables else got not in tables
        for got, kind in zip(found, wanted, strict=True)
    )


def frame_of(log: Lookalike, path: Path) -> pd.DataFrame:
    if path.suffix == ".json":
        return pd.read_json(path, lines=True)
    return pd.read_csv(
        path,
        sep=log.separator,
        header=0 if log.header else None,
        encoding=log.encoding,
        engine="python" if len(log.separator) > 1 else "c",
    )


def error_of(table: Mapping[str, Any], column: pd.Series, log: Lookalike, batch: int) -> float:
    # the largest relative difference of a table's numbers from a count by pandas: of ids a sample,
    # distinct ids, the hottest one's share, and distinct ones of a batch
    if log.lists and column.astype(str).str.contains(log.lists, regex=False).any():
        column = column.str.split(log.lists).explode()
    kept = column.dropna()
    if kept.dtype.kind in "if":
        kept = kept[kept >= 0]
    hits = kept.value_counts()
    whole = table["num_samples"] // batch if table["num_samples"] >= batch else 1
    batches = [
        kept[(kept.index >= start * batch) & (kept.index < (start + 1) * batch)].nunique()
        for start in range(whole)
    ]
    pairs = [
        (table["pooling_factor"], len(kept) / table["num_samples"]),
        (table["num_distinct"], len(hits)),
        (table["hot_rows"][0]["lookup_share"], hits.max() / hits.sum()),
        (table["unique_rows"], float(np.mean(batches))),
    ]
    return max(abs(float(ours / theirs) - 1) for ours, theirs in pairs)


@pytest.mark.parametrize("log", LOOKALIKES, ids=lambda log: log.of)
def test_look_alikes_of_public_logs(tmp_path: Path, log: Lookalike) -> None:
    path = log.make(tmp_path, 5000)
    found, frame = inspect(path), frame_of(log, path)
    assert right_kinds(log, list(kinds(found).values())) == len(log.kinds.split()), kinds(found)
    names = list(kinds(found))
    for table in found.tables:
        column = frame.iloc[:, names.index(table.name)]
        counted = inspection_data(found, lambda _: 64)["tables"][found.tables.index(table)]
        assert error_of(counted, column, log, found.batch_samples) < 1e-9


@pytest.mark.parametrize("separator", ["\t", "::", ";", "|", " "])
def test_separators_are_told(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "u.data"
    path.write_text("".join(f"{line}\n" for line in movielens(5000, separator)))
    found = inspect(path)
    assert list(kinds(found).values()) == ["ids", "ids", "label", "time"]
    assert sum(table.num_embeddings for table in found.tables) < 3000


def test_clicks_of_sessions_are_told_to_be_together(tmp_path: Path) -> None:
    path = LOOKALIKES[6].make(tmp_path, 6000)
    session, item, _ = inspect(path, asked=Asked(batch_samples=1000)).tables
    assert (item.kind, item.num_embeddings) == (Kind.RAW, item.num_distinct + item.num_unseen)
    assert 300 < item.num_distinct < item.num_embeddings < 350
    assert session.order_effect > 0.5


def test_names_are_given_or_those_of_atomic_files(tmp_path: Path) -> None:
    path = LOOKALIKES[2].make(tmp_path, 5000)
    named = inspect(path, asked=Asked(columns=("user", "item", "rating", "time")))
    assert [table.name for table in named.tables] == ["user", "item"]
    atomic = tmp_path / "ml.inter"
    atomic.write_text(
        "user_id:token\titem_id:token\trating:float\n" + "1\t2\t3.0\n2\t2\t4.0\n" * 50
    )
    assert [table.name for table in inspect(atomic, asked=Asked(tables=("user_id",))).tables] == [
        "user_id"
    ]


def test_a_text_whose_types_change_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    lines = [
        "item,site,price",
        *(f"{i % 9},{i % 5},{i % 3}" for i in range(200_000)),
        "1,x,2",
        "2,3,0.5",
    ]
    path.write_text("\n".join(lines))
    found = inspect(path)
    assert kinds(found) == {"item": "ids", "site": "category", "price": "number"}
    assert found.tables[1].num_distinct == 6


def test_lines_with_other_numbers_of_fields_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    good = "".join(f"{i % 50},s{i % 7}\n" for i in range(2000))
    path.write_bytes(b"item,site\n" + good.encode() + b"1,\xff\xfe,3\n1,2,3,4\n" + good.encode())
    found = inspect(path)
    assert (found.num_samples, found.spoilt_lines) == (4000, 2)


def test_texts_of_any_bytes_are_categories(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(
        b"user,city\n" + b"".join(b"%d,caf\xe9 %d\n" % (i % 9, i % 5) for i in range(500))
    )
    assert inspect(path).tables[1].num_distinct == 5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "an HDF5 file"),
        (b"FEA1" + bytes(100), "Feather file of version 1"),
        (b"\xfd7zXZ\x00 and more", "compressed by xz"),
        ("item,user\n1,2\n".encode("utf-16"), "UTF-16"),
        (b"", "the file is empty"),
        (b"PAR1 cut off", "parquet"),
        (b"ARROW1\0\0 cut off", "cannot be read"),
        (b"ORC cut off", "orc"),
        (b"Lorem ipsum, dolor\nsit amet. consectetur\nadipiscing elit, sed, do\n", "no separator"),
        (b"x" * 2**21, "first line has more than"),
        (b"\x1f\x8b\x08\0 cut off", "damaged"),
        (b"[1, 2]\n[3]\n\0", "not a file of recorded ids"),
        (b'{"a": 1}\n{"a": \n', "JSON"),
    ],
)
def test_what_is_no_log_says_what_is_wrong(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(InputError, match=message):
        inspect(tmp_path / "x")


def test_a_column_that_cannot_be_read_is_refused_and_no_other(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = pa.table({
        "item": random.integers(0, 50, 200),
        "nested": [[[1], [2]]] * 200,
        "struct": [{"a": 1}] * 200,
        "nothing": pa.nulls(200),
        "when": pa.array([0] * 200, pa.timestamp("s")),
        "none": pa.array([[]] * 200, pa.list_(pa.int64(), 0)),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet")
    found = inspect(tmp_path / "x.parquet")
    assert [each.name for each in found.tables] == ["item"]
    assert kinds(found) == {
        "item": "ids", "nested": "other", "struct": "other", "nothing": "other", "when": "time",
        "none": "other",
    }  # fmt: skip


def test_the_watch_ends_the_counting(tmp_path: Path) -> None:
    pq.write_table(plain_table(), tmp_path / "x.parquet")
    seen: list[tuple[int, int | None]] = []

    def watch(done: int, total: int | None) -> bool:
        seen.append((done, total))
        return done < 2000

    found = inspect(tmp_path / "x.parquet", asked=Asked(batch_samples=500), watch=watch)
    assert found.interrupted
    assert found.num_samples == 2000
    assert seen == [(500 * n, 3000) for n in range(1, 5)]


def test_rows_are_read_few_at_a_time_where_lists_are_long(tmp_path: Path) -> None:
    # 16 rows of 2^20 ids each would be 16 million in one batch, and are half as many at most
    piece = pa.table({"hist": pa.array([[7, 8] * 2**19] * 4)})
    with pq.ParquetWriter(tmp_path / "x.parquet", piece.schema) as writer:
        for _ in range(4):
            writer.write_table(piece)
    found = inspect(tmp_path / "x.parquet")
    assert found.batch_samples == 8
    assert found.tables[0].pooling_factor == 2**20
    assert ds.dataset(tmp_path / "x.parquet").count_rows() == found.num_samples


def test_a_text_among_numbers_is_told(tmp_path: Path) -> None:
    lines = ["user,item", *(f"{n % 97},{n % 13}" for n in range(500)), "oops,3"]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    found = inspect(tmp_path / "log.csv")
    assert "`user` has `oops` among numbers: taken as texts" in list(remarks(found))
