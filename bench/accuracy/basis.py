"""What predicted steps rest on: how much of their critical paths is measured, and how much not.

Every stretch of the critical path counts for the number of the profile that decides how long it
is: an operator's time on the host, a curve of a collective, the constants of a lookup or a matrix
product, the memory's bandwidth. Plans are those of ``cost_greedy``, the same in every run.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.accuracy_tables import percent, table

from bench.documented import blocks
from costmodel.base.units import MS, Seconds
from costmodel.domain.families import kernel_families
from costmodel.domain.hardware import Bound, HardwareProfile, Source
from costmodel.domain.workload import Workload
from costmodel.step.graph import Node, NodeKind, Role, Stage
from costmodel.step.program_timeline import plan_timeline
from costmodel.step.timeline import Timeline
from planner.files.workload import load_workload, parse_workload
from planner.verbs.planning import plan

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "bench/workloads"
EXAMPLE = "tables.yaml"
"""The workload that the README has in full."""
HARDWARE = "h100-sxm"
SHARDER = "cost_greedy"
BEYOND = "beyond its range"
COLUMNS = (Source.MEASURED, Source.FITTED, BEYOND, Source.DATASHEET, Source.ASSUMED)
CONTENDING: Mapping[str, tuple[Role, ...]] = {
    "products": (Role.PRODUCT,),
    "lookups": (Role.LOOKUP, Role.UPDATE),
}
ABOUT = (
    f"Shares in % of the critical path of a step on {HARDWARE}, by what the number is that decides "
    "each stretch of it, and the stretches that count most. Beyond its range: what was measured or "
    "fitted, used for more or larger tables, products, messages or nodes than that was. Behind "
    "collectives: the parts of the path that contention would lengthen by 6 to 14% (products) and "
    "by 3 to 27% (lookups; `bench.overlap`), which no duration has in it."
)


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A workload and the GPUs it is trained on."""

    workload: Workload
    gpus: int


def jobs() -> Mapping[str, TrainingJob]:
    """Return the README's example, MLPerf's DCNv2 and the open dataset's 856 tables."""
    return {
        "README's tables.yaml, 8 GPUs": TrainingJob(readme_example(), 8),
        "MLPerf DCNv2, 8 GPUs": TrainingJob(load_workload(WORKLOADS / "dlrm_dcnv2.yaml"), 8),
        "open 856 tables, 64 GPUs": TrainingJob(load_workload(WORKLOADS / "open_856.yaml"), 64),
    }


def readme_example() -> Workload:
    """Return the workload of the README's own example."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (body,) = (block.body for block in blocks(text) if block.argument == EXAMPLE)
    return parse_workload(body, EXAMPLE)


def results() -> dict[str, Any]:
    """Return seconds of every job's critical path by source, and by source and stage."""
    found = {}
    for name, job in jobs().items():
        planned = plan(
            job.workload, gpus=job.gpus, hardware=HARDWARE, sharder=SHARDER, baseline="none"
        )
        timeline = plan_timeline(planned.workload, planned.topology, planned.plan)
        stages: dict[str, dict[str, Seconds]] = defaultdict(lambda: defaultdict(float))
        for segment in timeline.critical_path():
            node = timeline.graph.nodes[segment.node]
            of_host = segment.stage is Stage.HOST
            kind = source_of(node, planned.topology.hardware, job.workload, of_host=of_host)
            stages[kind][segment.stage.value] += segment.seconds
        found[name] = {
            "step_s": timeline.step_time,
            "stages": stages,
            "behind_s": {
                kind: behind_collectives(timeline, roles) for kind, roles in CONTENDING.items()
            },
        }
    return found


def behind_collectives(timeline: Timeline, roles: Collection[Role]) -> Seconds:
    """Return seconds of such kernels on the critical path while their rank's links are busy."""
    nodes, path = timeline.graph.nodes, timeline.critical_path()
    kernels = [each for each in path if nodes[each.node].role in roles]
    ranks = {nodes[each.node].rank for each in kernels}
    begin, end = timeline.window
    busy: dict[int, list[tuple[Seconds, Seconds]]] = defaultdict(list)
    for number, node in enumerate(nodes):
        if node.kind is NodeKind.COLLECTIVE and node.rank in ranks:
            busy[node.rank].append((timeline.starts[number], timeline.ends[number]))
    total = 0.0
    for each in kernels:
        if each.stage is not Stage.HOST:
            first, last = max(each.start, begin), min(each.start + each.seconds, end)
            total += _covered(first, last, busy[nodes[each.node].rank])
    return total


def _covered(
    first: Seconds, last: Seconds, intervals: Sequence[tuple[Seconds, Seconds]]
) -> Seconds:
    """Return how much of a stretch lies in any of some intervals."""
    covered, reached = 0.0, first
    for begin, end in sorted(intervals):
        length = min(end, last) - max(begin, reached)
        if length > 0:
            covered, reached = covered + length, min(end, last)
    return covered


def source_of(
    node: Node, hardware: HardwareProfile, workload: Workload, *, of_host: bool = False
) -> str:
    """Return what the number rests on that decides how long a node takes.

    ``of_host``: the stretch before the node, which the host takes to launch it.
    """
    families = kernel_families(hardware)
    if of_host or node.kind in (NodeKind.HOST, NodeKind.WAIT):
        return families["host"].source
    if node.kind is NodeKind.COPY:
        return families["memory_copy"].source
    if node.role is Role.EXCHANGE:
        source = _exchange_source(node, hardware)
    elif node.stage in _LOOKUPS:
        family = families[_LOOKUPS[node.stage]]
        source = Source.FITTED if family.num_points else Source.DATASHEET
    elif node.role is Role.PRODUCT:
        source = families[f"gemm.{workload.dense.precision.value}"].source
    else:
        source = hardware.kind("gpu.memory_bandwidth")
    beyond = source in (Source.MEASURED, Source.FITTED) and node.basis.extrapolated
    return BEYOND if beyond else source or Source.ASSUMED


def _exchange_source(node: Node, hardware: HardwareProfile) -> Source | None:
    """Return what a curve rests on, or the link whose numbers stand in for one."""
    if node.basis.source is not Source.DATASHEET:
        return node.basis.source
    inside = node.basis.bound_by is Bound.INTRA_NODE_BANDWIDTH
    return hardware.kind(f"{'intra' if inside else 'inter'}_node.bandwidth")


_LOOKUPS = {
    Stage.LOOKUP_FORWARD: "embedding_forward",
    Stage.LOOKUP_BACKWARD: "embedding_backward",
}


def basis_table(found: Mapping[str, Any]) -> str:
    """Return a row for every job."""
    rows = []
    for name, job in found.items():
        shares = {kind: sum(stages.values()) for kind, stages in job["stages"].items()}
        stretches = [
            (seconds, f"{stage.replace('_', ' ')} {percent(seconds / job['step_s'], 0)} ({kind})")
            for kind, stages in job["stages"].items()
            for stage, seconds in stages.items()
        ]
        most = ", ".join(text for _, text in sorted(stretches, reverse=True)[:4])
        columns = (percent(shares.get(kind, 0.0) / job["step_s"], 0) for kind in COLUMNS)
        behind = (percent(job["behind_s"][kind] / job["step_s"]) for kind in CONTENDING)
        rows.append([name, f"{job['step_s'] / MS:.2f} ms", *columns, *behind, most])
    contending = (f"{kind} behind collectives" for kind in CONTENDING)
    header = ["job", "step", *COLUMNS, *contending, "most of it"]
    return table(header, rows)
