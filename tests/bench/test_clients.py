"""Losses of two runs are compared step by step, and weights do not depend on the plan."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.clients.absent import stand_in_for
from bench.clients.client import CLIENTS, SOURCES, Client
from bench.clients.losses import largest_difference, relative
from bench.clients_table import clients, configurations, summary, warned
from bench.forked_python import python_command
from bench.forked_ranks import ROOT


def test_the_largest_difference_is_of_any_rank_and_step() -> None:
    one = {"0": [2.0, 1.0], "1": [4.0, 8.0]}
    other = {"0": [2.0, 1.0], "1": [4.0, 10.0]}
    assert largest_difference(one, other) == pytest.approx(2 / 10)
    assert largest_difference(one, one) == 0.0


@pytest.mark.parametrize("other", [{"0": [2.0]}, {"0": [2.0, 1.0], "1": [1.0, 1.0]}, {}])
def test_runs_of_other_ranks_or_steps_are_not_compared(other: dict[str, list[float]]) -> None:
    assert largest_difference({"0": [2.0, 1.0]}, other) is None


def test_differences_are_relative_to_the_larger() -> None:
    assert relative(-1.0, 3.0) == pytest.approx(4 / 3)
    assert relative(0.0, 0.0) == 0.0


def test_nothing_trained_is_no_difference() -> None:
    assert largest_difference({"0": []}, {"0": []}) is None


def test_a_checkout_that_is_not_there_is_named_with_its_repository(tmp_path: Path) -> None:
    for client in CLIENTS:
        assert SOURCES[client.checkout] in client.missing(tmp_path)


def test_a_package_that_is_not_installed_is_named(tmp_path: Path) -> None:
    client = Client(name="a", checkout="torchrec", script="a.py", packages=("json", "no_such.part"))
    (tmp_path / "torchrec").mkdir()
    (tmp_path / "torchrec" / "a.py").touch()
    assert client.missing(tmp_path) == "not installed: no_such.part"


def test_names_of_clients_are_their_own() -> None:
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)


def test_packages_that_are_absent_are_stood_in_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    stand_in_for(["absent_package", "json"])
    from absent_package.part import Base, decorated  # type: ignore[import-not-found]

    class Derived(Base):  # type: ignore[misc]
        pass

    @decorated
    def three() -> int:
        return 3

    assert three() == 3
    assert list(Base.anything()) == []
    assert Derived.__mro__[1:] == (object,)
    assert json.loads("1") == 1, "what is installed stays"
    with pytest.raises(ModuleNotFoundError):
        __import__("another_absent_package")


def _row(error: str = "", **ours: Any) -> dict[str, Any]:  # noqa: ANN401 - of results
    both: dict[str, Any] = {
        "seconds": 0.5, "step": 0.002, "types": {"row_wise": 2}, "losses": {"0": [1.0, 2.0]},
        "warnings": [], "error": "",
    }  # fmt: skip
    return {
        "theirs": {**both, "step": 0.004},
        "ours": {**both, "error": error, **ours},
        "sharded_otherwise": 2,
        "replicated_otherwise": 1,
        "difference": 3e-8,
    }


def test_a_row_says_how_losses_compare() -> None:
    row = clients({"a": _row()}).splitlines()[-1]
    plans = "| a | 2 row_wise | 2 row_wise | 2, 1 | 0.5 s, 0.5 s |"
    assert row == f"{plans} 4.00 ms, 2.00 ms | 2 | 3.0e-08 |"


def test_a_row_says_what_was_raised() -> None:
    row = clients({"a": _row("ValueError: a | b\nmore")}).splitlines()[-1]
    assert row == "| a | trained | ValueError: a / b |  |  |  |  |  |"


def test_configurations_are_summed_up() -> None:
    rows = [
        {"configuration": "a", **_row()},
        {"configuration": "b", **_row(step=0.003)},
        {"configuration": "c", **_row("PlannerError: no", step=None)},
        {"configuration": "d", "not_built": "KeyError: 'x'"},
    ]
    assert "| d | not built: KeyError: 'x' |" in configurations(rows)
    # 2 ms and 3 ms of 4 ms
    assert summary(rows) == (
        "Of 4 configurations of TorchEasyRec, 3 build on a CPU and 3 have tables. Planned for "
        "8 H100: 0 fail with TorchRec's planner, 1 with this one. Planning takes 0.5 s (at most "
        "0.5) and 0.5 s (at most 0.5); by this planner's own model its steps take 62% of what "
        "those of TorchRec's plans do (50% to 75%)."
    )
    assert summary(rows[2:]).endswith("1 with this one.")


def test_warnings_are_counted_by_their_first_lines() -> None:
    rows = [_row(warnings=["roughly (a)", "  more"]), _row(warnings=["roughly (b)", "other"])]
    assert warned(rows) == "2 x roughly\n1 x other"


SCRIPT = """
import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        table = EmbeddingBagConfig(
            name="t", num_embeddings=50, embedding_dim=256, feature_names=["f"]
        )
        self.ebc = EmbeddingBagCollection(tables=[table], device=torch.device("meta"))
        self.top = nn.Linear(256, 1)

    def forward(self, ids):
        return (self.top(self.ebc(ids).values()) ** 2).mean()


def train(kind):
    dist.init_process_group("gloo")
    if kind == "none":
        raise ValueError("of the script's own")
    model = Net()
    apply_optimizer_in_backward(torch.optim.SGD, model.ebc.parameters(), {"lr": 0.1})
    sharders = [EmbeddingBagCollectionSharder()]
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=2, compute_device="cpu"),
        constraints={"t": ParameterConstraints(sharding_types=[kind])},
    )
    plan = planner.collective_plan(model, sharders, dist.GroupMember.WORLD)
    parallel = DistributedModelParallel(model, plan=plan, sharders=sharders)
    dense = KeyedOptimizerWrapper(
        dict(in_backward_optimizer_filter(parallel.named_parameters())),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    while True:
        dense.zero_grad()
        ids = KeyedJaggedTensor(["f"], torch.randint(0, 50, (8,)), lengths=torch.ones(8).int())
        parallel(ids).backward()
        dense.step()
"""
RUNS = """
import json, sys
from pathlib import Path
from bench.clients.client import Client, RunSettings
from bench.clients.runs import run
settings = RunSettings(checkouts=Path(sys.argv[1]), steps=4, seconds=0.2)
found = {}
for kind in "table_wise", "column_wise", "data_parallel", "none":
    called = {"function": "train", "settings": {"kind": kind}}
    client = Client(name="a", checkout="a", script="a.py", **called)
    found[kind] = run(client, settings, ours=kind == "data_parallel")
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_script_has_the_same_losses_under_any_plan(tmp_path: Path) -> None:
    pytest.importorskip("torchrec", reason="torchrec is not installed")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.py").write_text(SCRIPT)
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [*python_command(), "-W", "ignore", "-c", RUNS, tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    failed = found.pop("none")
    assert failed["error"] == "ValueError: of the script's own"
    for kind, each in found.items():
        assert each["error"] == ""
        assert each["shardings"]["ebc.t"].startswith(kind)
        assert each["step"] > 0
        assert each["seconds"] > 0
    losses = [each["losses"] for each in found.values()]
    assert [len(rank) for rank in losses[0].values()] == [4, 4]
    assert losses[0]["0"] != losses[0]["1"], "each rank draws its own batches"
    assert all(largest_difference(losses[0], other) < 1e-6 for other in losses[1:])
