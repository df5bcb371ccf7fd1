from pathlib import Path

import pytest
from command_runs import Command
from needed import needs_torchrec

from planner.files.workload_reading import load_workload, parse_workload

MODEL = """\
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

def make():
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", num_embeddings=1000, embedding_dim=64, feature_names=[f"f{i}"]
        )
        for i in range(3)
    ]
    return torch.nn.ModuleDict({"sparse": EmbeddingBagCollection(tables=tables, device="meta")})

class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = make()["sparse"]
        self.experts = torch.nn.ModuleList(torch.nn.Linear(192, 8) for _ in range(3))

    def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
        print("a word of the model")
        rows = self.tables(sparse).values()
        return sum(expert(rows).sum() for expert in self.experts)

def experts():
    return Experts()

def number():
    return 1

def broken():
    raise ValueError("no vocabulary here\\nand more of it")
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
        (
            "model_of_mine:broken",
            "`model_of_mine:broken`: it raised ValueError: no vocabulary here ",
        ),
        ("model_half_written:make", "importing it raised SyntaxError: "),
    ],
)
def test_what_is_no_model_is_refused(run: Command, model: str, spec: str, reason: str) -> None:
    assert model
    Path("model_half_written.py").write_text("def make(:\n")
    done = run("plan", "--from-torchrec", spec, "--gpus", "2")
    assert done.code == 3
    assert reason in " ".join(done.err.split())
    assert "Traceback" not in done.err


@needs_torchrec
def test_a_factory_that_raises_is_said_in_a_line_with_its_own(run: Command, model: str) -> None:
    done = run("plan", "--from-torchrec", f"{model}:broken", "--gpus", "2")
    line = (
        MODEL.splitlines().index('    raise ValueError("no vocabulary here\\nand more of it")') + 1
    )
    assert f"model_of_mine.py:{line})" in "".join(done.err.split())
    assert "and more of it" not in done.err


@needs_torchrec
def test_a_workload_file_is_made_of_a_model(run: Command, model: str, directory: Path) -> None:
    done = run("init", "mine.yaml", "--from-torchrec", f"{model}:make", "--batch-size", "64")
    assert done.code == 0
    text = (directory / "mine.yaml").read_text()
    assert text.startswith(f"# Read off the TorchRec model of {model}:make.")
    workload = load_workload(directory / "mine.yaml")
    assert [table.name for table in workload.tables] == ["t0", "t1", "t2"]
    assert workload.local_batch_size == 64


@needs_torchrec
def test_what_a_model_runs_is_beside_its_workload_file(
    run: Command, model: str, directory: Path
) -> None:
    asked = ("init", "mine.yaml", "--from-torchrec", f"{model}:experts")
    assert run(*asked).code == 0
    assert "operators: mine.dense.json}" in (directory / "mine.yaml").read_text()
    listed = load_workload(directory / "mine.yaml").dense.operators
    assert listed is not None
    assert listed.num_parameters == 3 * (192 * 8 + 8)
    (directory / "mine.yaml").unlink()
    done = run(*asked)
    assert (done.code, "mine.dense.json: this file exists" in done.err) == (3, True)
    assert run(*asked, "--force").code == 0
    done = run("init", "-", "--from-torchrec", f"{model}:experts")
    assert parse_workload(done.out, "out").dense.operators == listed
    assert "a word of the model" not in done.out


@needs_torchrec
def test_what_a_model_does_not_say_is_told(run: Command, model: str, directory: Path) -> None:
    told = ("--dense-optimizer", "adam", "--precision", "bf16")
    done = run("init", "mine.yaml", "--from-torchrec", f"{model}:make", *told)
    assert done.code == 0
    dense = load_workload(directory / "mine.yaml").dense
    assert (dense.optimizer, dense.precision) == ("adam", "bf16")


@needs_torchrec
def test_an_optimizer_that_there_is_not_is_named(run: Command, model: str) -> None:
    asked = ("--from-torchrec", f"{model}:make", "--gpus", "2", "--dense-optimizer", "lion")
    done = run("plan", *asked)
    assert done.code == 3
    assert "unknown dense_optimizer `lion`; accepted are sgd, " in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'FILE'"),
        (("tables.yaml", "--from-torchrec", "a:b"), "give either FILE or --from-torchrec"),
        (("tables.yaml", "--batch-size", "64"), "--batch-size goes with --from-torchrec"),
        (("tables.yaml", "--precision", "bf16"), "--precision goes with --from-torchrec"),
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
    from planner.environment import extras as presence

    monkeypatch.setattr(presence, "find_spec", lambda _: None)
    monkeypatch.delitem(torchrec.__dict__, "read_factory", raising=False)
    done = run("plan", "--from-torchrec", "a:b", "--gpus", "2")
    assert done.code == 5
    assert ".[torchrec]" in done.err


@needs_torchrec
def test_a_sweep_reads_a_model_too(run: Command, directory: Path) -> None:
    (directory / "model_to_sweep.py").write_text(MODEL)
    told = ("--batch-size", "256", "--dense-optimizer", "sgd", "--gpus", "1,2")
    skus = ("--sku", "GTT=h100-sxm", "--sku", "OLD=v100-nvlink")
    done = run("sweep", "--from-torchrec", "model_to_sweep:make", *told, *skus, "--json")
    assert [
        (point["hardware"], point["world_size"], point["local_batch_size"])
        for point in done.data["points"]
    ] == [("GTT", 1, 256), ("GTT", 2, 256), ("OLD", 1, 256), ("OLD", 2, 256)]
    both = run("sweep", "tables.yaml", "--from-torchrec", "model_to_sweep:make", "--gpus", "1")
    assert both.code == 2
    assert "give either FILE or --from-torchrec" in both.err
    assert run("sweep", "--gpus", "1").code == 2
