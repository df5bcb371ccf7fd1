"""The memory that a plan was made under is in its file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases

import planner
from costmodel.base.errors import InfeasibleError, InputError
from costmodel.base.units import GIB
from costmodel.domain.hardware import Topology
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.files.plan_memory import PlanMemory
from planner.files.plans import PlanFile, dump_plan_file, parse_plan_file, plan_text
from planner.files.plans import planned_topology as topology_again
from planner.files.profiles import load_profile

H100 = load_profile("h100-sxm")
sizes = st.floats(0, 1e13)


@st.composite
def machines(draw: st.DrawFn, world_size: int, local: int) -> Topology:
    gpu = replace(H100.gpu, memory_bytes=draw(sizes))
    host = replace(H100.host, memory_bytes=draw(sizes))
    withheld = draw(st.just(()) | st.tuples(*[sizes] * world_size))
    hardware = draw(st.sampled_from([H100, replace(H100, gpu=gpu, host=host)]))
    return Topology(
        hardware=hardware, world_size=world_size, local_world_size=local, withheld_bytes=withheld
    )


@given(cases(), st.data())
@settings(max_examples=30)
def test_a_plan_s_machine_is_read_back_as_it_was(
    case: tuple[Workload, Topology, planner.ShardingPlan], data: st.DataObject
) -> None:
    workload, ranks, plan = case
    made_under = data.draw(machines(ranks.world_size, ranks.local_world_size))
    file = PlanFile(
        plan=plan, workload=workload, hardware="h100-sxm",
        memory=PlanMemory.of(made_under, "h100-sxm"),
    )  # fmt: skip
    again = parse_plan_file(plan_text(dump_plan_file(file)), "plan.json")
    assert again == file
    assert topology_again(again) == made_under


def test_a_file_says_nothing_where_the_profile_says_it() -> None:
    ranks = Topology(hardware=H100, world_size=2, local_world_size=2)
    assert PlanMemory.of(ranks, "h100-sxm") is None
    assert PlanMemory.of(ranks, "h200-sxm") == PlanMemory.of(ranks, "no-such-profile")


def test_a_loaded_plan_keeps_its_memory_when_it_is_saved_again(tmp_path: Path) -> None:
    """A plan of 60 GiB under 80 GiB a rank is refused where a rank had 40, and so is its copy's."""
    table = EmbeddingTable(name="t", num_embeddings=60 * 2**21, embedding_dim=128)
    planned = planner.plan(
        Workload(tables=(table,), local_batch_size=64), gpus=2, hardware="h100-sxm",
        baseline="none", max_plans=5,
    )  # fmt: skip
    path = tmp_path / "plan.json"
    planned.save(path)
    written = json.loads(path.read_text("utf-8"))
    assert "memory" not in written
    written["memory"] = {"rank_bytes": 70 * GIB, "host_bytes": 1e12, "withheld_bytes": [0.0, 1e9]}
    path.write_text(json.dumps(written), "utf-8")
    loaded = planner.load_plan(path)
    assert loaded.topology.withheld_bytes == (0.0, 1e9)
    assert loaded.topology.hardware.gpu.memory_bytes == 70 * GIB
    assert loaded.report.usable_bytes < planned.report.usable_bytes
    loaded.save(path)
    assert json.loads(path.read_text("utf-8"))["memory"] == written["memory"]
    written["memory"]["rank_bytes"] = 20 * GIB
    path.write_text(json.dumps(written), "utf-8")
    with pytest.raises(InfeasibleError, match="does not fit"):
        planner.load_plan(path)


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ({"rank_bytes": 1.0, "host_bytes": 1.0, "withheld_bytes": [1.0]}, "needs 2 numbers, got 1"),
        ({"rank_bytes": -1.0, "host_bytes": 1.0}, "rank_bytes"),
        ({"rank_bytes": 1e30, "host_bytes": 1.0}, "rank_bytes"),
        ({"rank_bytes": 1.0}, "missing field `host_bytes`"),
    ],
)
def test_memory_that_cannot_be_is_refused(memory: dict[str, object], said: str) -> None:
    table = EmbeddingTable(name="t", num_embeddings=8, embedding_dim=4)
    planned = planner.plan(
        Workload(tables=(table,), local_batch_size=8), gpus=2, baseline="none", max_plans=1
    )
    with pytest.raises(InputError) as caught:
        parse_plan_file(json.dumps(planned.to_dict() | {"memory": memory}), "plan.json")
    assert said in " ".join(problem.message for problem in caught.value.problems)
