import shutil
from pathlib import Path

import pytest
from command_runs import Command, Run
from kineto_traces import two_ranks, write_folder

from planner.cli import main

WORKLOAD = """\
name: small
local_batch_size: 1024
dense: {bottom_mlp: [64, 32], top_mlp: [64, 1]}
tables:
  - {name: item, num_embeddings: 1_000_000, embedding_dim: 32, pooling_factor: 20}
  - {name: user, num_embeddings: 5_000_000, embedding_dim: 32, pooling_factor: 5}
  - {name: ad, num_embeddings: 10_000, embedding_dim: 32}
  - {name: place, num_embeddings: 200_000, embedding_dim: 32, pooling_factor: 2}
"""


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a folder with tables, without settings of the user's own."""
    for name in ("HARDWARE", "SHARDER", "SEED", "BASELINE"):
        monkeypatch.delenv(f"PLANNER_{name}", raising=False)
    monkeypatch.setenv("PLANNER_TIME_LIMIT", "0.2s")  # most are not about the search
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.chdir(folder)
    (folder / "tables.yaml").write_text(WORKLOAD)
    return folder


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter(tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two plans of the tables on two GPUs, made once: ``plan.json``, and a slower one."""
    made = {"plan.json": "size_lookup_greedy", "naive.json": "naive"}
    folder = tmp_path_factory.mktemp("plans")
    with pytest.MonkeyPatch.context() as patched:
        enter(folder, patched)
        for name, sharder in made.items():
            with pytest.raises(SystemExit, match="0"):
                main(("plan", "tables.yaml", "--gpus", "2", "--sharder", sharder, "-o", name, "-q"))
    return [folder / name for name in made]


@pytest.fixture
def planned(directory: Path, plans: list[Path]) -> Path:
    """The first of the two plans, in the test's folder; the other is beside it."""
    for plan in plans:
        shutil.copy(plan, directory)
    return directory / "plan.json"


@pytest.fixture
def traces(directory: Path) -> str:
    return str(write_folder(directory / "traces", two_ranks()))


@pytest.fixture
def run(directory: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    del directory

    def command(*arguments: str) -> Run:
        with pytest.raises(SystemExit) as done:
            main(arguments)
        captured = capsys.readouterr()
        assert isinstance(done.value.code, int)
        return Run(done.value.code, captured.out, captured.err)

    return command
