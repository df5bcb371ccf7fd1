"""``planner inspect``, as typed."""

from pathlib import Path

import numpy as np
import pytest
from command_runs import Command

from costmodel.inputs.distribution import ReuseHistogram, Zipf
from planner.files.source import parse_yaml
from planner.files.workload_reading import load_workload

SAMPLES = 2048
ROWS = {"item": 1_000_000, "user": 5_000_000, "ad": 10_000}


@pytest.fixture
def ids(directory: Path) -> str:
    """Zipf-like ids of three of the four tables, two or one per sample."""
    random = np.random.default_rng(0)
    arrays = {}
    for name, rows in ROWS.items():
        each = 1 if name == "ad" else 2
        drawn = random.zipf(1.5, SAMPLES * each) * 7919 % rows
        arrays[name] = drawn.reshape(SAMPLES, each)
    np.savez(directory / "ids.npz", **arrays)
    return "ids.npz"


def test_the_report(run: Command, ids: str) -> None:
    done = run("inspect", ids)
    assert (done.code, done.err) == (0, f"{FEW}\n{EMPTY}\n")
    assert done.out == REPORT
    assert max(map(len, done.out.splitlines())) <= 80


EMPTY = (
    "`user` has 367 distinct ids of up to 4,965,213: unhashed ones, or few of many rows; "
    "`--as user=raw` if they are no rows"
)
FEW = (
    "2,048 samples are less than a batch of 4,096: distinct rows of a batch are extrapolated from "
    "them, and may be a third off; read more"
)


REPORT = """\
3 tables, 2,048 samples in 1 batch of 2,048

  Table  Kind           Rows  Ids/sample  Unique  Hottest   Memory
  item   sequence    995,589        2.00    8.8%    38.3%  0.2 GiB
  user   sequence  4,965,214        2.00    9.0%    37.3%  1.2 GiB
  ad     ids           9,876        1.00   10.4%    37.2%  2.4 MiB

  1.4 GiB of weights in fp32, optimizer not counted

  What columns are taken for; `--as a=KIND` says otherwise
  item, user  sequence  lists of whole numbers
  ad          ids       whole numbers
"""


def test_wide_has_the_rest(run: Command, ids: str) -> None:
    done = run("inspect", ids, "--wide", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert done.out == REPORT + WIDE


WIDE = """
  More of each table
  Table   Rows from            Distinct   Unseen   Covered   Deviation   Longest   Half of all on\
            Zipf   Misfit   Skew of 8   Shuffled
  item    the largest id + 1        360        0     94.1%        0.00         2           2 rows\
   1.499 ± 0.014       2%        6.45      +6.3%
  user    the largest id + 1        367        0     94.0%        0.00         2           2 rows\
   1.494 ± 0.014       2%        7.37      -0.9%
  ad      the largest id + 1        212        0     93.7%        0.00         1           2 rows\
   1.503 ± 0.023       6%        3.40      +5.4%

  Distinct rows by their hits in one batch, in %
  Table   1   2   3+   5+   9+  17+  33+  65+  129+  257+  513+  1k+  2k+  4k+  8k+  16k+  >32k
  item   67  11  6.7  6.4  3.3  2.8   .8  1.1    .6    .3    .3   .3    ·    ·    ·     ·     ·
  user   67  12  8.2  3.8  3.5  2.2  1.1  1.1    .5    .3    .3   .3    ·    ·    ·     ·     ·
  ad     61  17  6.6  5.2  4.2  2.4  1.9   .5    .5    .5    .5    ·    ·    ·    ·     ·     ·
"""


def test_a_fragment_with_a_dimension_is_a_workload(run: Command, ids: str) -> None:
    done = run("inspect", ids, "--embedding-dim", "64", "-o", "new.yaml")
    assert (done.code, done.err) == (0, f"{FEW}\n{EMPTY}\nWrote new.yaml\n")
    assert "\nlocal_batch_size: 4096\n" in Path("new.yaml").read_text()  # to be seen and changed
    workload = load_workload("new.yaml")
    assert [table.name for table in workload.tables] == ["item", "user", "ad"]
    assert [table.pooling_factor for table in workload.tables] == [2.0, 2.0, 1.0]
    assert isinstance(workload.tables[0].inputs, ReuseHistogram)
    assert run("plan", "new.yaml", "--gpus", "2", "--sharder", "size_greedy", "-q").code == 0


def test_patching_loses_nothing(run: Command, ids: str, directory: Path) -> None:
    before = directory / "tables.yaml"
    text = before.read_text().replace("name: small", "name: small  # why\ncomms: {forward: fp16}")
    before.write_text(text.replace("pooling_factor: 2}", "pooling_factor: 2, weighted: true}"))
    done = run("inspect", ids, "--workload", "tables.yaml", "--law", "zipf", "-o", "tables.yaml")
    assert done.code == 0
    assert done.err == "nothing recorded of: place\nWrote tables.yaml\n"
    data = parse_yaml(before.read_text(), "x").data
    assert data["comms"] == {"forward": "fp16"}
    assert data["dense"] == {"bottom_mlp": [64, 32], "top_mlp": [64, 1]}
    item, user, ad, place = data["tables"]
    assert place == {
        "name": "place",
        "num_embeddings": 200_000,
        "embedding_dim": 32,
        "pooling_factor": 2,
        "weighted": True,
    }
    assert item["num_embeddings"] == 1_000_000
    assert [table["pooling_factor"] for table in (item, user, ad)] == [2.0, 2.0, 1.0]
    assert isinstance(load_workload("tables.yaml").tables[0].inputs, Zipf)


def test_files_without_names_go_in_order(run: Command, directory: Path) -> None:
    lengths = np.ones((4, 10), int)
    lengths[2] = 2
    indices = np.arange(lengths.sum())
    np.savez(directory / "open.npz", indices=indices, lengths=lengths)
    assert run("inspect", "open.npz", "--workload", "tables.yaml", "-o", "new.yaml", "-q").code == 0
    pooling = [table.pooling_factor for table in load_workload("new.yaml").tables]
    assert pooling == [1.0, 1.0, 2.0, 1.0]


def test_yaml_on_stdout_sends_the_report_to_stderr(run: Command, ids: str) -> None:
    done = run("inspect", ids, "-o", "-")
    assert parse_yaml(done.out, "x").data["tables"][0]["name"] == "item"
    assert "3 tables, 2,048 samples" in done.err


def test_json(run: Command, ids: str) -> None:
    data = run("inspect", ids, "--batch-size", "512", "--json").data
    item = data["tables"][0]
    assert (data["schema_version"], item["num_batches"], item["num_samples"]) == (1, 4, SAMPLES)
    assert data["batch_samples"] == 512
    assert len(item["reuse_rows"]) == 17
    assert sum(item["reuse_rows"]) == pytest.approx(item["unique_rows"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("tables.yaml",), 3, "not a file of recorded ids"),
        (("none.npz",), 3, "no such file"),
        (("ids.npz", "--batch-size", "x"), 2, "not a number"),
        (("ids.npz", "--workload", "other.yaml"), 3, "no table of the workload has a feature"),
        (("ids.npz", "--workload", "few.yaml"), 3, "table `ad` has 10 rows, but the file has id"),
        (("few.npz", "--workload", "tables.yaml"), 3, "the file has 2 features without names"),
        (("ids.npz", "--workload", "tables.yaml", "--embedding-dim", "8"), 2, "without --workload"),
        (("ids.npz", "--embedding-dim", "66"), 2, "must be a multiple of 4"),
        (("ids.npz", "-o", "no/where.yaml"), 3, "no such directory"),
    ],
)
def test_what_cannot_be(
    run: Command, ids: str, directory: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    del ids
    table = "tables: [{name: NAME, num_embeddings: 10, embedding_dim: 8}]"
    (directory / "other.yaml").write_text(table.replace("NAME", "z"))
    (directory / "few.yaml").write_text(table.replace("NAME", "ad"))
    np.savez(directory / "few.npz", indices=np.arange(4), lengths=np.ones((2, 2), int))
    done = run("inspect", *arguments)
    assert done.code == code
    assert message in done.err


def test_ids_that_nobody_hashed_are_called_so(run: Command, directory: Path) -> None:
    random = np.random.default_rng(0)
    ids = random.integers(0, 2**62, 5000)
    time = 1_700_000_000 + random.integers(0, 100, 5000)
    np.savez(directory / "raw.npz", item=ids, time=time)
    done = run("inspect", "raw.npz", "--embedding-dim", "16", "--law", "zipf", "-o", "raw.yaml")
    assert done.code == 0
    assert "`item`: 5,000 distinct ids, nearly all of them once: its rows are a guess" in done.err
    assert "time  time     2023-11-14 to 2023-11-14 in seconds" in done.out
    assert "no Zipf exponent is told by the ids of `item`: histograms are written" in done.err
    written = Path("raw.yaml").read_text()
    assert "inf" not in done.out + written
    (item,) = load_workload("raw.yaml").tables
    # 5,000 seen, all once: 5,000 x 4,999 / 2 unseen ones at least
    assert item.num_embeddings == 5000 + 5000 * 4999 // 2
    assert item.inputs == ReuseHistogram(row_shares=(1.0,), num_lookups=5000.0, mean_hits=(1.0,))
    assert "# rows of item: distinct ids + Chao1's estimate of unseen ones" in written
    assert run("inspect", "raw.npz", "--json").data["tables"][0]["zipf"] is None


@pytest.fixture
def misnamed(directory: Path) -> str:
    """Two features of one table, 0 to 39 and 1 id per sample; the file calls one otherwise."""
    random = np.random.default_rng(0)
    lengths = random.integers(0, 40, 512)
    histo = random.integers(0, 1_000_000, lengths.sum())
    target = random.integers(0, 1_000_000, 512)
    ad = random.integers(0, 10_000, 512)
    np.savez(directory / "ids.npz", histo=histo, histo_lengths=lengths, target=target, ad=ad,
             score=np.ones(512))  # fmt: skip
    (directory / "w.yaml").write_text(
        "tables:\n"
        "  - {name: item, num_embeddings: 1_000_000, embedding_dim: 64, pooling_factor: 21, "
        "feature_names: [hist, target]}\n"
        "  - {name: ad, num_embeddings: 10_000, embedding_dim: 64, pooling_factor: 9}\n"
    )
    return "w.yaml"


def test_a_table_that_lacks_a_feature_stays_as_it_is(run: Command, misnamed: str) -> None:
    done = run("inspect", "ids.npz", "--workload", misnamed, "-o", "new.yaml")
    assert done.code == 0
    assert "score   other     not whole numbers in one or two dimensions" in done.out
    assert done.err.splitlines()[1:] == [
        "`item` stays as it is: this file lacks its `hist`, and has others of its features",
        "features of no table of the workload, left out: `histo`; did you mean `hist`?",
        "Wrote new.yaml",
    ]
    assert [table.pooling_factor for table in load_workload("new.yaml").tables] == [21, 1.0]
    data = run("inspect", "ids.npz", "--workload", misnamed, "--json").data
    assert data["absent"] == {"item": ["hist"]}
    assert (data["unknown"], data["missing"]) == (["histo"], [])
    kinds = {column["name"]: column["kind"] for column in data["columns"]}
    assert (kinds["score"], kinds["ad"]) == ("other", "ids")


def test_with_the_right_name_both_features_count(
    run: Command, misnamed: str, directory: Path
) -> None:
    text = (directory / misnamed).read_text()
    (directory / misnamed).write_text(text.replace("[hist,", "[histo,"))
    assert run("inspect", "ids.npz", "--workload", misnamed, "-o", "new.yaml").code == 0
    lengths = np.load("ids.npz")["histo_lengths"]
    item = load_workload("new.yaml").tables[0]
    assert item.pooling_factor == pytest.approx(1 + lengths.mean(), rel=1e-4)


def test_a_file_with_no_table_whole_is_refused(
    run: Command, misnamed: str, directory: Path
) -> None:
    text = (directory / misnamed).read_text()
    (directory / misnamed).write_text("\n".join(text.splitlines()[:2]))
    done = run("inspect", "ids.npz", "--workload", misnamed, "-o", "new.yaml")
    assert done.code == 3
    assert "table `item` has features that are not in this file: hist" in done.err
    assert "did you mean `histo`?" in done.err
    assert not (directory / "new.yaml").exists()


def test_nothing_is_written_that_plan_would_refuse(run: Command, directory: Path) -> None:
    np.savez(directory / "one.npz", item=np.zeros((1, 1_000_001), dtype=np.int8))
    done = run("inspect", "one.npz", "--embedding-dim", "8", "-o", "new.yaml")
    assert done.code == 3
    assert "what was counted is no workload: `pooling_factor` must be at most 1,000,000" in done.err
    assert not (directory / "new.yaml").exists()
    assert run("inspect", "one.npz").code == 0
