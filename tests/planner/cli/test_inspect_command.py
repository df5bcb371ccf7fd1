"""``planner inspect``, as typed."""

from pathlib import Path

import numpy as np
import pytest
from command_runs import Command

from costmodel.inputs.distribution import ReuseHistogram, Zipf
from planner.files.source import parse_yaml
from planner.files.workload import load_workload

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
    assert (done.code, done.err) == (0, "")
    assert done.out == REPORT
    assert max(map(len, done.out.splitlines())) <= 100


REPORT = """\
3 tables, 2,048 samples in 1 batch of 2,048

  Table   Pooling   Unique   Hottest row   Half of all on            Zipf   Misfit   Skew of 8
  item       2.00     8.8%         38.3%           2 rows   1.499 ± 0.014       2%        6.45
  user       2.00     9.0%         37.3%           2 rows   1.494 ± 0.014       2%        7.37
  ad         1.00    10.4%         37.2%           2 rows   1.503 ± 0.023       6%        3.40

  Distinct rows by their hits in one batch, in %
  Table   1   2   3+   5+   9+  17+  33+  65+  129+  257+  513+  1k+  2k+  4k+  8k+  16k+  >32k
  item   67  11  6.7  6.4  3.3  2.8   .8  1.1    .6    .3    .3   .3    ·    ·    ·     ·     ·
  user   67  12  8.2  3.8  3.5  2.2  1.1  1.1    .5    .3    .3   .3    ·    ·    ·     ·     ·
  ad     61  17  6.6  5.2  4.2  2.4  1.9   .5    .5    .5    .5    ·    ·    ·    ·     ·     ·
"""


def test_a_fragment_with_a_dimension_is_a_workload(run: Command, ids: str) -> None:
    done = run("inspect", ids, "--embedding-dim", "64", "-o", "new.yaml")
    assert (done.code, done.err) == (0, "Wrote new.yaml\n")
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
    done = run("inspect", ids, "--workload", "tables.yaml", "--as", "zipf", "-o", "tables.yaml")
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
    assert "Distinct rows" in done.err


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
        (("ids.npz", "--batch-size", "9999"), 3, "a batch of 9,999 samples is more than the 2,048"),
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
