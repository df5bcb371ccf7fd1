"""What one command writes, those that take such files read: every writer with every reader."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command_runs import Command

pytestmark = pytest.mark.slow

SEARCH = ("--gpus", "2", "--time-limit", "0.1s", "--sharder", "naive")
ON_CPU = ("--hardware", "cpu-gloo")
NAME = "täble: #1, 'two'"
"""A name that YAML and JSON must quote."""
MODEL = f"""
import torch
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

def make():
    table = EmbeddingBagConfig(
        name={NAME!r}, num_embeddings=1000, embedding_dim=8, feature_names=["f"])
    model = torch.nn.Module()
    model.ebc = EmbeddingBagCollection(tables=[table], device=torch.device("meta"))
    return model
"""
Writer = Callable[[Command], str]


def made(run: Command, target: str, *words: str) -> str:
    done = run(*words)
    assert done.code == 0, (words, done.out + done.err)
    if not Path(target).exists():
        Path(target).write_text(done.out)
    return target


def record(largest: int, samples: int, *, many: int = 1) -> None:
    random = np.random.default_rng(0)
    ids = random.integers(0, largest, (samples, many), dtype=np.int64)
    np.savez("ids.npz", **{"item": ids, NAME: ids[:, :1] % 100})


def inspected(run: Command, largest: int, samples: int, *words: str, many: int = 1) -> str:
    record(largest, samples, many=many)
    return made(run, "new.yaml", "inspect", "ids.npz", "--embedding-dim", "8", "-o", "new.yaml",
                *words)  # fmt: skip


def patched(run: Command) -> str:
    record(1_000_000, 300, many=20)
    words = ("inspect", "ids.npz", "--workload", "tables.yaml", "-o", "new.yaml")
    return made(run, "new.yaml", *words)


def of_model(run: Command) -> str:
    pytest.importorskip("torchrec")
    Path("model.py").write_text(MODEL)
    return made(run, "new.yaml", "init", "new.yaml", "--from-torchrec", "model:make")


WORKLOADS: Mapping[str, Writer] = {
    "init": lambda run: made(run, "new.yaml", "init", "new.yaml"),
    "init -": lambda run: made(run, "new.yaml", "init", "-"),
    "init --from-torchrec": of_model,
    "inspect --workload": patched,
    **{
        f"inspect of ids below 2^{bits}{' '.join(['', *words])}": partial(
            lambda run, bits, words: inspected(run, 2**bits, 1000, *words), bits=bits, words=words
        )
        for bits, words in (
            *((bits, ()) for bits in (0, 7, 20, 31, 62)),
            *((bits, ("--law", law)) for bits in (0, 62) for law in ("zipf", "unique_fraction")),
        )
    },
    "inspect of one sample": lambda run: inspected(run, 100, 1, many=7),
    "inspect of a long sample": lambda run: inspected(run, 2**20, 2, many=100_000),
}


@pytest.mark.parametrize("writer", WORKLOADS)
def test_workloads(run: Command, writer: str) -> None:
    name = WORKLOADS[writer](run)
    made(run, "planned.json", "plan", name, *SEARCH, "-o", "planned.json")
    made(run, "compared", "compare", name, "--gpus", "2", "--sharder", "naive")
    made(run, "kept", "sweep", name, *SEARCH, "-o", "kept")


def planned(run: Command, target: str, *words: str) -> str:
    return made(run, target, "plan", "tables.yaml", *SEARCH, *words)


def swept(run: Command) -> str:
    made(run, "kept", "sweep", "tables.yaml", *SEARCH, "-o", "kept")
    return str(next(path for path in Path("kept").iterdir() if path.name != "sweep.json"))


def saved_by_hand(run: Command) -> str:
    from planner.editing.edits import EditSession
    from planner.files.plans import load_plan_file
    from planner.verbs.loading import judge

    file = load_plan_file(planned(run, "first.json", "-o", "first.json"))
    return str(EditSession(file=file, planned=judge(file), target=Path("edited.json")).save())


def imported(run: Command) -> str:
    pytest.importorskip("torchrec")
    plan = planned(run, "first.json", "-o", "first.json")
    made(run, "p.pt", "torchrec", "export", plan, "-o", "p.pt", "--module", "ebc")
    words = ("--workload", "tables.yaml", "--gpus", "2", "-o", "second.json")
    return made(run, "second.json", "torchrec", "import", "p.pt", *words)


def of_a_model(run: Command) -> str:
    pytest.importorskip("torchrec")
    Path("model.py").write_text(MODEL)
    words = ("plan", "--from-torchrec", "model:make", *SEARCH, "-o", "m.json")
    return made(run, "m.json", *words)


PLANS: Mapping[str, Writer] = {
    "plan": lambda run: planned(run, "a.json", "-o", "a.json"),
    "plan -": lambda run: planned(run, "a.json", "-o", "-", "-q"),
    "plan on CPU": lambda run: planned(run, "a.json", "-o", "a.json", *ON_CPU),
    "plan --from-torchrec": of_a_model,
    "sweep": swept,
    "open": saved_by_hand,
    "torchrec import": imported,
}


@pytest.mark.parametrize("writer", PLANS)
def test_plans(run: Command, monkeypatch: pytest.MonkeyPatch, writer: str) -> None:
    monkeypatch.setattr("planner.cli.open_command._serve", lambda _: None)
    plan = PLANS[writer](run)
    made(run, "1", "explain", plan, "--what-if", "gpus=1")
    made(run, "trace.json", "simulate", plan, "--trace", "trace.json")
    made(run, "2", "compare", plan, plan)
    made(run, "3", "open", plan, "--no-browser")
    pytest.importorskip("torchrec")
    places = () if "torchrec" in writer else ("--module", "ebc")
    made(run, "out.pt", "torchrec", "export", plan, "-o", "out.pt", *places)
    made(run, "b.json", "torchrec", "import", "out.pt", "--like", plan, "-o", "b.json")
    made(run, "4", "compare", plan, "b.json")


def learned(run: Command) -> str:
    words = ("calibrate", "--from-trace", "traces", "--hardware", "h100-sxm", "-o", "mine.yaml")
    return made(run, "mine.yaml", *words)


PROFILES: Mapping[str, Writer] = {
    "profiles show": lambda run: made(run, "mine.yaml", "profiles", "show", "h100-sxm"),
    "profiles show of CPUs": lambda run: made(run, "mine.yaml", "profiles", "show", "cpu-gloo"),
    "calibrate --from-trace": learned,
    "calibrate --host": lambda run: made(
        run, "mine.yaml", "calibrate", "--host", "--hardware", "h100-sxm", "-o", "mine.yaml"
    ),
}


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize("writer", PROFILES)
def test_profiles(run: Command, writer: str) -> None:
    if writer == "calibrate --host":
        pytest.importorskip("torch")
    name = PROFILES[writer](run)
    plan = planned(run, "a.json", "-o", "a.json", "--hardware", name)
    made(run, "1", "explain", plan, "--what-if", "gpus=1")
    made(run, "2", "sweep", "tables.yaml", *SEARCH, "--hardware", f"{name},h100-sxm")
    again = made(run, "again.yaml", "profiles", "show", name)
    assert Path(again).read_text() == run("profiles", "show", again).out
    made(run, "3", "estimate", "gemm", "--m", "8", "--n", "8", "--k", "8", "--hardware", name)


@pytest.mark.parametrize("target", ["again", "again/"])
def test_traces(run: Command, traces: str, target: str) -> None:
    made(run, "again", "replay", traces, "--trace", target)
    made(run, "1", "replay", "again")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("plan", "tables.yaml", *SEARCH, "--json"), "report that `--json` prints"),
        (("simulate", "plan.json", "--json"), "report that `--json` prints"),
        (("profiles", "show", "h100-sxm", "--json"), "report that `--json` prints"),
        (("plan", "none.yaml", "--gpus", "2", "--json"), "report that `--json` prints"),
        (("sweep", "tables.yaml", *SEARCH, "--json"), "sweep's own file"),
    ],
)
def test_what_is_for_other_programs_is_named(
    run: Command, directory: Path, words: tuple[str, ...], kind: str
) -> None:
    planned(run, "plan.json", "-o", "plan.json")
    (directory / "x.json").write_text(run(*words).out)
    for reader in (
        ("explain", "x.json"),
        ("plan", "x.json", "--gpus", "2"),
        ("plan", "tables.yaml", "--gpus", "2", "--hardware", "x.json"),
    ):
        done = run(*reader)
        assert (done.code, done.out) == (3, "")
        assert f"x.json: this is a {kind}, and a " in done.err
