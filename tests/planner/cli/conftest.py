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


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HARDWARE", "SHARDER", "SEED", "BASELINE"):
        monkeypatch.delenv(f"PLANNER_{name}", raising=False)
    monkeypatch.setenv("PLANNER_TIME_LIMIT", "0.2s")  # most are not about the search
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables.yaml").write_text(WORKLOAD)
    return tmp_path


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
