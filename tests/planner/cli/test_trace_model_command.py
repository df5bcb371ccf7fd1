"""``planner trace-model``: what it prints, writes and refuses."""

from pathlib import Path

import pytest
from command_runs import Command
from execution_trace_files import sharded_step, write_job
from needed import needs_torchrec

from costmodel.operators.operator_list import BatchSize
from costmodel.operators.work import work_of
from planner.files.dense import load_operators

pytestmark = needs_torchrec

MODEL = """
import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        config = EmbeddingBagConfig(
            name="a", num_embeddings=99, embedding_dim=16, feature_names=["a"]
        )
        self.tables = EmbeddingBagCollection(tables=[config], device=torch.device("meta"))
        self.layer = nn.Linear(16, 8)

    def forward(self, sparse: KeyedJaggedTensor, more=None):
        return self.layer(self.tables(sparse).values()).relu()


class Taking(Model):
    def forward(self, sparse: KeyedJaggedTensor, what):
        return super().forward(sparse) * what


def make():
    return Model()


def taking():
    return Taking()


def batches():
    lengths = torch.ones(20, dtype=torch.int32)
    sparse = KeyedJaggedTensor(["a"], torch.zeros(20, dtype=torch.int64), lengths=lengths)
    return [(sparse, torch.rand(20, 1))]


def no_list():
    return 3
"""


@pytest.fixture
def name(directory: Path) -> str:
    """Return a module that has a name of its own, as imported ones are kept."""
    made = directory / f"model_{abs(hash(directory))}.py"
    made.write_text(MODEL, encoding="utf-8")
    return made.stem


def test_what_a_model_runs_is_printed_and_written(run: Command, name: str, directory: Path) -> None:
    flags = ("--batch-size", "100", "--hardware", "h100-sxm", "-o", "dense.json")
    done = run("trace-model", f"{name}:make", *flags)
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert f"{name}:make: " in text
    assert "136 parameters outside the tables" in text  # 16 x 8, and 8
    assert "forward 25.6 kFLOP" in text  # 2 x 100 x 16 x 8
    assert "to issue them (h100-sxm)" in text
    assert "the sum of its outputs stands for it" in text
    found = load_operators(directory / "dense.json")
    assert work_of(found.at(BatchSize(1000))).forward_flop == 2 * 1000 * 16 * 8


def test_json_has_the_numbers(run: Command, name: str) -> None:
    data = run("trace-model", f"{name}:make", "--batch-size", "100", "--json").data
    assert (data["num_parameters"], data["forward_flop"]) == (136, 25_600)
    assert data["batch"] == {"samples": 100, "sequences": []}
    assert data["times_s"] is None
    assert {each["family"] for each in data["families"]} >= {"products", "elementwise"}
    timed = run("trace-model", f"{name}:make", "--hardware", "h100-sxm", "--json").data
    assert timed["times_s"]["forward"]["host"] > timed["times_s"]["forward"]["kernels"] > 0


def test_batches_are_asked_for_and_taken(run: Command, name: str) -> None:
    refused = run("trace-model", f"{name}:taking")
    assert refused.code != 0
    assert "its forward takes `what`" in refused.err
    assert "--batches" in refused.err
    assert run("trace-model", f"{name}:taking", "--batches", f"{name}:batches").code == 0
    wrong = run("trace-model", f"{name}:taking", "--batches", f"{name}:no_list")
    assert "it returns a int, not a list" in wrong.err


def test_a_trace_is_read_and_written(run: Command, directory: Path) -> None:
    write_job(directory / "job", sharded_step(), sharded_step())
    done = run("trace-model", "job", "--hardware", "h100-sxm", "-o", "dense.json")
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "rank0.json: 3 operators, 256 parameters outside the tables" in text
    assert "batch 2 samples" in text
    assert "its batch has 2 samples" in text
    found = load_operators(directory / "dense.json")
    # 2 x 8 x 32 multiplications forward, twice as many backward
    assert work_of(found.at(BatchSize(100))).flop == 3 * 2 * 100 * 8 * 32
    told = run("trace-model", "job", "--batch-size", "1", "--json").data
    assert (told["batch"]["samples"], told["forward_flop"]) == (1, 2 * 2 * 8 * 32)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("job", "--batch-size", "7"), 3, "has 7 rows, or a multiple of them"),
        (("job", "--longest", "7"), 2, "--longest goes with a model: a trace is of one batch"),
        (("job", "--batches", "a:b"), 2, "--batches goes with a model"),
        (("none.json",), 3, "no such file or folder"),
        (("core.yaml",), 3, "this is not a trace file by its name"),
    ],
)
def test_errors_of_traces(
    run: Command, directory: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    write_job(directory / "job", sharded_step())
    done = run("trace-model", *arguments)
    assert done.code == code
    assert message in done.err
