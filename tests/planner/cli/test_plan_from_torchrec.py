from pathlib import Path

import pytest
from command_runs import Command
from needed import needs_torchrec

from planner.files.workload import load_workload

MODEL = """\
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

def make():
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", num_embeddings=1000, embedding_dim=64, feature_names=[f"f{i}"]
        )
        for i in range(3)
    ]
    return torch.nn.ModuleDict({"sparse": EmbeddingBagCollection(tables=tables, device="meta")})

def number():
    return 1
"""


@pytest.fixture
def model(directory: Path) -> str:
    (directory / "model_of_mine.py").write_text(MODEL)
    return "model_of_mine"


@needs_torchrec
def test_tables_are_read_off_a_model(run: Command, model: str) -> None:
    arguments = ("--gpus", "2", "--time-limit", "1s")
    done = run("plan", "--from-torchrec", f"{model}:make", "--batch-size", "64", *arguments)
    assert done.code == 0
    assert "3 tables" in done.out
    assert "local batch 64" in done.out
    assert "planner torchrec export plan.json" in done.err


@needs_torchrec
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("model_of_mine", "module:function"),
        ("nowhere_at_all:make", "no module `nowhere_at_all`"),
        ("model_of_mine:makes", "no function `makes`"),
        ("model_of_mine:number", "a int, not a torch.nn.Module"),
    ],
)
def test_what_is_no_model_is_refused(run: Command, model: str, spec: str, reason: str) -> None:
    assert model
    done = run("plan", "--from-torchrec", spec, "--gpus", "2")
    assert done.code == 3
    assert reason in " ".join(done.err.split())


@needs_torchrec
def test_a_workload_file_is_made_of_a_model(run: Command, model: str, directory: Path) -> None:
    done = run("init", "mine.yaml", "--from-torchrec", f"{model}:make", "--batch-size", "64")
    assert done.code == 0
    text = (directory / "mine.yaml").read_text()
    assert text.startswith(f"# Read off the TorchRec model of {model}:make.")
    workload = load_workload(directory / "mine.yaml")
    assert [table.name for table in workload.tables] == ["t0", "t1", "t2"]
    assert workload.local_batch_size == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'FILE'"),
        (("tables.yaml", "--from-torchrec", "a:b"), "give either FILE or --from-torchrec"),
        (("tables.yaml", "--batch-size", "64"), "--batch-size goes with --from-torchrec"),
    ],
)
def test_a_file_or_a_model_is_needed(
    run: Command, arguments: tuple[str, ...], message: str
) -> None:
    done = run("plan", *arguments, "--gpus", "2")
    assert done.code == 2
    assert message in done.err


def test_without_torchrec_it_says_what_to_install(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from planner import torchrec
    from planner.environment import torchrec_presence as presence

    monkeypatch.setattr(presence, "find_spec", lambda _: None)
    monkeypatch.delitem(torchrec.__dict__, "read_factory", raising=False)
    done = run("plan", "--from-torchrec", "a:b", "--gpus", "2")
    assert done.code == 5
    assert ".[torchrec]" in done.err
