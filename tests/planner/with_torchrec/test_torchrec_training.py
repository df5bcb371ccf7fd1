"""DMP under our plans trains as the unsharded model does: real processes, gloo, on CPU."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from bench.forked_ranks import ROOT, command

pytest.importorskip("torchrec", reason="torchrec is not installed")

from torchrec.distributed import comm
from torchrec_cases import TYPES, Model

from planner.torchrec.error_types import INPUT_VALIDATION
from planner.torchrec.topology import RESOLVED_POD_SIZE

pytestmark = pytest.mark.slow  # processes that train

KERNELS = ["fused_uvm", "fused_uvm_caching"]
WITHIN_NODES = TYPES[4:]
"""Sharding types that keep a table within a node, and so differ where there are several."""
WORKER = Path(__file__).with_name("torchrec_worker.py")
SCRIPT = Path(__file__).with_name("torchrec_script.py")
DOMAIN_WORKER = Path(__file__).with_name("domain_worker.py")
GROUPS_WORKER = Path(__file__).with_name("groups_worker.py")
PIPELINES_WORKER = Path(__file__).with_name("pipelines_worker.py")
PIPELINES = ["none", "sparse_dist", "fused_sparse_dist"]
"""Those that a CPU can run. The prefetching one finds no rows without its stream; semi-sync updates
rows between a lookup's forward and backward, which FBGEMM's lookup on CPUs refuses."""
PLANNERS = [
    "torchrec.distributed.planner:EmbeddingShardingPlanner",
    "planner.torchrec:IterationTimePlanner",
]

Losses = dict[str, tuple[list[float], list[str]]]


def run(script: Path, world_size: int, *arguments: object) -> None:
    """Run a script once per rank, which is its first argument."""
    done = subprocess.run(  # noqa: S603 - our own interpreter and files
        command(script.stem, world_size, *arguments),
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(script.parent)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def train(folder: Path, world_size: int, local_world_size: int, *names: str) -> Losses:
    run(WORKER, world_size, local_world_size, folder, *names)
    losses: Losses = json.loads((folder / "losses_0.json").read_text())
    return losses


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two_ranks")


@pytest.fixture(scope="module")
def two_ranks(folder: Path) -> Losses:
    return train(folder, 2, 2, *TYPES, *KERNELS, "mixed")


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory: pytest.TempPathFactory) -> Losses:
    """Four ranks, on two nodes."""
    return train(tmp_path_factory.mktemp("four_ranks"), 4, 2, *WITHIN_NODES, "mixed")


def check(losses: Losses, name: str, reference: str = "reference") -> None:
    assert losses[name][0] == pytest.approx(losses[reference][0], abs=1e-6)


@pytest.mark.parametrize("name", TYPES)
def test_a_sharding_type_alone_trains_as_unsharded(two_ranks: Losses, name: str) -> None:
    check(two_ranks, name)
    assert two_ranks[name][1] == [name]


@pytest.mark.parametrize("name", WITHIN_NODES)
def test_it_does_on_four_ranks_of_two_nodes(four_ranks: Losses, name: str) -> None:
    check(four_ranks, name)
    assert four_ranks[name][1] == [name]


@pytest.mark.parametrize("ranks", ["two_ranks", "four_ranks"])
def test_pooled_unpooled_and_weighted_modules_train_as_unsharded(
    request: pytest.FixtureRequest, ranks: str
) -> None:
    losses: Losses = request.getfixturevalue(ranks)
    check(losses, "arms", "arms reference")
    assert len(losses["arms"][1]) == 5


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_in_host_memory_trains_as_unsharded(two_ranks: Losses, name: str) -> None:
    check(two_ranks, name)


def test_all_sharding_types_in_one_plan_train_as_unsharded(two_ranks: Losses) -> None:
    check(two_ranks, "mixed")
    assert two_ranks["mixed"][1] == sorted(TYPES)


@pytest.mark.skipif(
    not hasattr(comm, "get_topology_group_world_size"),
    reason="the installed torchrec knows no pods",
)
def test_rows_over_the_hosts_of_an_nvlink_domain_train_as_unsharded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RESOLVED_POD_SIZE, "2")
    run(DOMAIN_WORKER, 4, tmp_path)
    for rank in range(4):
        losses: Losses = json.loads((tmp_path / f"losses_{rank}.json").read_text())
        check(losses, "domain")
        assert losses["domain"][1] == ["table_row_wise"]


@pytest.mark.parametrize("layout", ["near", "far"])
def test_two_groups_of_two_ranks_train_as_unsharded(tmp_path: Path, layout: str) -> None:
    run(GROUPS_WORKER, 4, tmp_path, layout)
    for rank in range(4):
        losses: Losses = json.loads((tmp_path / f"losses_{rank}.json").read_text())
        check(losses, "groups")
        assert losses["groups"][1] == sorted(TYPES)
        assert abs(losses["frozen"][0][-1] - losses["groups"][0][-1]) > 1e-3


def test_feature_processed_bags_and_sequences_train_as_unsharded(two_ranks: Losses) -> None:
    check(two_ranks, "wrapped", "wrapped reference")
    assert len(two_ranks["wrapped"][1]) == 4


def test_sequences_of_unique_ids_train_as_unsharded(two_ranks: Losses) -> None:
    check(two_ranks, "deduplicated", "wrapped reference")


@pytest.mark.parametrize("arms", ["", "arms ", "wrapped "])
def test_the_losses_would_tell_if_embeddings_were_not_trained(two_ranks: Losses, arms: str) -> None:
    frozen, trained = two_ranks[f"{arms}frozen"][0], two_ranks[f"{arms}reference"][0]
    assert abs(frozen[-1] - trained[-1]) > 1e-3


def test_all_sharding_types_on_four_ranks_train_as_unsharded(four_ranks: Losses) -> None:
    check(four_ranks, "mixed")
    assert four_ranks["mixed"][1] == sorted(TYPES)


@pytest.mark.filterwarnings("ignore")  # of torch and FBGEMM, about each other
def test_one_rank_trains_as_unsharded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist
    from torchrec_worker import reference, sharded

    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        losses, kinds = sharded(Model, {}, 1)
    finally:
        dist.destroy_process_group()
    assert losses == pytest.approx(reference(Model, 1), abs=1e-6)
    assert kinds


REFUSALS = {
    "batch size": ("the batch size is 64 on rank 0, 65 on rank 1", INPUT_VALIDATION.name),
    "world size": ("the world size is 2 on rank 0, 3 on rank 1", INPUT_VALIDATION.name),
    "tables": ("the list of tables is (('t', 10, 64),) on rank 0", INPUT_VALIDATION.name),
    "constraints": ("table `t0` cannot be sharded", "STRICT_CONSTRAINTS"),
    "memory": ("no plan fits: the tables need 11.9 GiB", "INSUFFICIENT_STORAGE"),
    "reading": ("TypeError: 'NoneType' object is not callable on rank 1", INPUT_VALIDATION.name),
}


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_planned_is_refused_alike_on_every_rank(folder: Path, name: str) -> None:
    told = [json.loads((folder / f"refusals_{rank}.json").read_text()) for rank in (0, 1)]
    assert told[0][name] == told[1][name]
    message, kind = REFUSALS[name]
    assert message in told[0][name][0]
    assert told[0][name][1] == kind


def test_a_training_script_loses_the_same_with_its_planner_swapped(tmp_path: Path) -> None:
    found = []
    for planner in PLANNERS:
        folder = tmp_path / planner.partition(":")[2]
        folder.mkdir()
        run(SCRIPT, 2, folder, planner)
        found.append(json.loads((folder / "script_0.json").read_text()))
    (theirs, _), (ours, kinds) = found
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert len(ours) == 6
    assert {"table_wise", "column_wise"} & set(kinds)


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[float]]]:
    """Return every rank's losses under every pipeline."""
    folder = tmp_path_factory.mktemp("pipelines")
    run(PIPELINES_WORKER, 2, folder, *PIPELINES)
    return [json.loads((folder / f"pipelines_{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_pipeline_trains_as_unsharded(
    pipelines: list[dict[str, list[float]]], pipeline: str
) -> None:
    for losses in pipelines:
        assert losses[pipeline] == pytest.approx(losses["reference"], abs=1e-6)


def test_accumulated_gradients_train_as_unsharded(pipelines: list[dict[str, list[float]]]) -> None:
    for losses in pipelines:
        if "accumulated" not in losses:
            pytest.skip("the installed torchrec has no GradientAccumulationWrapper")
        assert losses["accumulated"] == pytest.approx(losses["accumulated reference"], abs=1e-6)
        assert losses["accumulated"][2:] != pytest.approx(losses["reference"][2:], abs=1e-6)
