import io
import json
from pathlib import Path

import pytest
from command_runs import Command
from needed import needs_torchrec
from printouts import printout

pytestmark = pytest.mark.slow


MODULE = ("--module", "sparse")


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
def test_a_plan_of_one_group_goes_into_a_collection(run: Command, directory: Path) -> None:
    told = ("--gpus", "8", "--replica-group", "4", "--no-use-inter-host-allreduce")
    assert run("plan", "tables.yaml", *told, "--sharder", "size_greedy").code == 0
    done = run("torchrec", "export", "plan.json", *MODULE)
    assert (
        "model = DMPCollection(model, plan=plan, sharders=sharders, device=device, global_pg=pg, "
        "world_size=8, sharding_group_size=4, node_group_size=4, use_inter_host_allreduce=False, "
        "sharding_strategy=ShardingStrategy.DEFAULT)"
    ) in done.err
    assert (directory / "plan.pt").exists()


@needs_torchrec
def test_a_domain_of_several_hosts_is_told(run: Command, directory: Path) -> None:
    text = (directory / "tables.yaml").read_text(encoding="utf-8")
    (directory / "tables.yaml").write_text(
        text.replace("factor: 20}", "factor: 20, sharding_types: [table_row_wise]}")
    )
    told = ("--gpus", "144", "--hardware", "gb200-nvl72", "--sharder", "size_greedy")
    assert run("plan", "tables.yaml", *told).code == 0
    asked = ("torchrec", "export", "plan.json", *MODULE)
    assert "Nodes have 72 GPUs; where hosts have fewer, give --gpus-per-host" in run(*asked).err
    done = run(*asked, "--gpus-per-host", "4")
    assert "In the environment of all ranks: TORCHREC_RESOLVED_POD_SIZE=18" in done.err
    import torch

    made = torch.load(directory / "plan.pt", weights_only=False)
    shards = made.plan["sparse"]["item"].sharding_spec.shards
    devices = {each.placement.device().index for each in shards}
    assert (len(shards), devices) == (72, {0, 1, 2, 3})
    assert "--gpus-per-host 5 does not divide" in run(*asked, "--gpus-per-host", "5").err


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


PRINTED = printout(
    {"FQN": "sparse.a", "Ranks": "0", "Num Indices": "40.0"},
    {"FQN": "sparse.b", "Ranks": "0", "Num Indices": "50.0"},
    {"FQN": "sparse.c", "Ranks": "1"},
    world_size=2,
)


def test_a_log_makes_a_plan_that_other_commands_go_on_from(run: Command, directory: Path) -> None:
    (directory / "job.log").write_text("\n".join(f"[rank0]: {line}" for line in PRINTED))
    done = run("torchrec", "read-stats", "job.log", "--hardware", "a100-sxm-80gb")
    assert done.code == 0
    assert "warning: 64.0 GiB of a rank are printed to be left for tables" in done.out
    assert "Next: planner explain job.json        planner plan --from job.json" in done.err
    again = run("plan", "--from", "job.json", "-o", "better.json", "--max-plans", "300")
    assert again.code == 0
    assert "start; this plan is" in again.out
    said = ("world_size", "hardware", "memory", "torchrec", "workload")
    was, made = (json.loads((directory / f).read_text()) for f in ("job.json", "better.json"))
    assert made["step_time_s"] < was["step_time_s"]
    assert [was[key] for key in said] == [made[key] for key in said]
    for command in (("simulate", "job.json"), ("compare", "job.json", "better.json")):
        assert run(*command).code == 0


def test_a_log_may_come_from_a_pipe(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.BytesIO("\n".join(PRINTED).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(log))
    told = ("--data-type", "bf16", "--output-type", "fp32", "--nodes", "2", "--json")
    done = run("torchrec", "read-stats", "-", "-o", "job.json", *told)
    assert any("1 rank a node" in note for note in done.data["notes"])
    assert not any("widest" in note for note in done.data["notes"])


def test_a_log_that_is_cut_is_refused_at_its_line(run: Command, directory: Path) -> None:
    cut = [line[:200] if "sparse.b" in line else line for line in PRINTED]
    (directory / "job.log").write_text("\n".join(cut))
    done = run("torchrec", "read-stats", "job.log")
    assert done.code == 3
    assert "the row is cut off: it ends before `" in done.err
    line = next(n for n, each in enumerate(cut, start=1) if "sparse.b" in each)
    assert f"--> job.log:{line}:1" in done.err


@pytest.mark.parametrize(
    "arguments", [("--gpus", "2"), ("--nodes", "1"), ("--hardware", "h100-sxm"), ("tables.yaml",)]
)
def test_a_plan_to_begin_with_has_its_own_workload_and_machine(
    run: Command, arguments: tuple[str, ...]
) -> None:
    done = run("plan", "--from", "plan.json", *arguments)
    assert done.code == 2
    assert "--from" in done.err


@pytest.mark.usefixtures("planned")
def test_a_plan_is_printed_as_torchrecs_planner_prints_one(run: Command, directory: Path) -> None:
    done = run("torchrec", "stats", "plan.json")
    assert done.code == 0
    assert "--- Planner Statistics ---" in done.out
    assert run("torchrec", "stats", "plan.json", "--json").data["lines"] == done.out.splitlines()
    (directory / "job.log").write_text(done.out)
    assert run("torchrec", "read-stats", "job.log", "-o", "back.json").code == 0
