import json
from pathlib import Path

import pytest
from command_runs import Command
from needed import needs_torchrec

pytestmark = pytest.mark.slow


MODULE = ("--module", "sparse")


@pytest.fixture
def planned(run: Command, directory: Path) -> Path:
    done = run("plan", "tables.yaml", "--gpus", "2", "--sharder", "size_greedy")
    assert done.code == 0
    return directory / "plan.json"


@needs_torchrec
def test_there_and_back_changes_nothing(run: Command, planned: Path) -> None:
    there = run("torchrec", "export", "plan.json", *MODULE)
    assert there.code == 0
    assert "Wrote plan.pt: 4 tables of `sparse`" in there.err
    assert 'plan = torch.load("plan.pt", weights_only=False)' in there.err
    back = run("torchrec", "import", "plan.pt", "--like", "plan.json", "-o", "back.json")
    assert back.code == 0
    assert "step time" in back.out
    assert "Wrote back.json" in back.err
    before, after = (
        json.loads((planned.parent / f).read_text()) for f in ("plan.json", "back.json")
    )
    for name in ("tables", "workload", "world_size", "local_world_size", "hardware"):
        assert after[name] == before[name]
    assert after["step_time_s"] == pytest.approx(before["step_time_s"])
    assert after["torchrec"]["tables"]["item"] == {"module": "sparse", "table": "item"}
    assert run("torchrec", "export", "back.json").code == 0  # it knows the module now


@needs_torchrec
@pytest.mark.usefixtures("planned")
def test_a_workload_and_gpus_do_as_well(run: Command) -> None:
    assert run("torchrec", "export", "plan.json", *MODULE, "--quiet").err == ""
    job = ("--workload", "tables.yaml", "--gpus", "2")
    done = run("torchrec", "import", "plan.pt", *job, "-o", "back.json", "--json")
    assert done.data["world_size"] == 2
    wrong = run("torchrec", "import", "plan.pt", "--workload", "tables.yaml", "--gpus", "1")
    assert wrong.code == 3


@pytest.mark.slow
@needs_torchrec
def test_a_model_says_where_its_tables_live(run: Command, directory: Path) -> None:
    (directory / "model_to_carry.py").write_text(
        "import torch\n"
        "from torchrec import EmbeddingBagCollection as Bags, EmbeddingBagConfig as Config\n"
        "def make():\n"
        "    tables = [Config(name='item', num_embeddings=99, embedding_dim=8, "
        "feature_names=['f'])]\n"
        "    return torch.nn.ModuleDict({'over': Bags(tables=tables, device='meta')})\n"
    )
    model = ("--from-torchrec", "model_to_carry:make")
    done = run("plan", *model, "--gpus", "2", "--sharder", "size_greedy", "-o", "made.json")
    assert done.code == 0
    assert "1 table of `over`" in run("torchrec", "export", "made.json").err
    back = run("torchrec", "import", "made.pt", *model, "--gpus", "2", "-o", "back.json")
    assert back.code == 0
    assert run("plan", "tables.yaml", "--gpus", "2", "--sharder", "size_greedy").code == 0
    done = run("torchrec", "export", "plan.json", *model)
    assert done.code == 3
    assert "table `ad` is absent in the model" in done.err


@needs_torchrec
@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("export", "plan.json"), 3, "does not say where in the model table `item` lives"),
        (("export", "plam.json", *MODULE), 3, "did you mean `plan.json`?"),
        (("export", "tables.yaml", *MODULE), 3, "tables.yaml"),
        (("export", "plan.json", *MODULE, "-o", "no/plan.pt"), 3, "no such directory"),
        (("export", "plan.json", *MODULE, "--from-torchrec", "a:b"), 2, "give either --module or"),
        (("import", "plan.json", "--like", "plan.json", "-o", "b"), 3, "no TorchRec plan"),
        (("import", "plan.pt", "--like", "plan.json"), 3, "no such file"),
        (("import", "plan.pt", "-o", "b"), 2, "give one of --workload, --from-torchrec and --like"),
        (("import", "plan.pt", "--workload", "tables.yaml", "-o", "b"), 2, "'--gpus'"),
    ],
)
def test_what_is_wrong_is_said(
    run: Command, arguments: tuple[str, ...], code: int, text: str
) -> None:
    done = run("torchrec", *arguments)
    assert done.code == code
    assert text in " ".join(done.err.split())
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("arguments", [("export", "plan.json"), ("import", "p.pt", "--gpus", "2")])
def test_without_torchrec_it_says_what_to_install(
    run: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    from planner import torchrec
    from planner.environment import extras as presence

    monkeypatch.setattr(presence, "find_spec", lambda _: None)
    for name in ("export_plan", "import_plan"):
        monkeypatch.delitem(torchrec.__dict__, name, raising=False)
    done = run("torchrec", *arguments)
    assert done.code == 5
    assert "pip install '.[torchrec]'" in done.err
