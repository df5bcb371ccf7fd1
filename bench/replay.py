"""Profiled multi-rank runs replayed with their own durations: `python -m bench.replay [--write]`.

Five public runs of TorchRec DLRMs in ``../shared/data/traces``: one step on 8 x V100 (with
execution traces), and four sets of three steps on 4 x V100, one with quantized communication. Each
is imported as an execution graph and timed by the simulator that times candidate plans, by the
paper's Algorithm 1, and by the maximum over streams of summed kernel time, every one with the same
measured durations. A step is the profiler's (host) step of one rank. Nothing is tuned: constants
of the importer are the profiler's clock, what CUDA documents, and thresholds named there.

Ablations leave one rule of the simulator or one kind of edge out. Algorithm 1 is given the host's
own time as overheads. In the row "blocked time as overhead" it is also given the time in which
the device blocks the host: then its host time is the measured time by construction.

Beside the imported graph of the 8 x V100 run stands the one synthesized for its model and plan:
kind and size of every collective on every rank.
"""

import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from bench.kept import write
from bench.traced_dlrm import CollectivePair, side_by_side, synthesized
from costmodel.base.units import GIB, MS
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Role, Stage
from planner.traces.execution_traces import execution_traces
from planner.traces.kineto import rank_traces
from planner.traces.replay.importing import ImportedRun, import_run
from planner.traces.replay.links import link
from planner.traces.replay.matching import match_collectives
from planner.traces.replay.modes import Mode, Replay, replay, replay_graph
from planner.traces.replay.operators import rank_operators
from planner.traces.trace_files import read_documents

ROOT = Path(__file__).parents[1]
TRACES = ROOT.parent / "shared/data/traces"
RESULTS = ROOT / "bench/results/replay.json"
SETS = (
    "dlrm8_v100",
    "torchrec4_v100_a2a_optimizer_2_0",
    "torchrec4_v100_a2a_optimizer_2_1",
    "torchrec4_v100_a2a_optimizer_4",
    "torchrec4_v100_a2a_optimizer_5_qcomm_0",
)
HOSTS = (NodeKind.HOST, NodeKind.WAIT)
GraphChange = Callable[[ExecutionGraph], ExecutionGraph]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """One run, and the same where blocked host time counts as overhead."""

    name: str
    run: ImportedRun
    blocks_as_overheads: ImportedRun


def load(name: str) -> Loaded:
    """Import one set of traces."""
    path = TRACES / name
    documents = read_documents(path)
    traces = rank_traces(documents, path)
    run = import_run(traces, name, link(traces, execution_traces(documents)))
    members = match_collectives(traces, name)
    operators = [rank_operators(trace, members) for trace in traces]
    return Loaded(name=name, run=run, blocks_as_overheads=replace(run, operators=operators))


def each_node(change: Callable[[Node, Sequence[Node]], Node]) -> GraphChange:
    """Return the change of a graph that changes every node."""
    return lambda graph: replace(graph, nodes=[change(n, graph.nodes) for n in graph.nodes])


def alone(node: Node, _: Sequence[Node]) -> Node:
    """Let every rank's collectives end on their own."""
    return replace(node, collective=None)


def unblocked(node: Node, nodes: Sequence[Node]) -> Node:
    """Let the host not wait for the device."""
    if node.kind is not NodeKind.WAIT:
        return node
    return replace(node, after=tuple(i for i in node.after if nodes[i].kind in HOSTS))


def unfed(node: Node, _: Sequence[Node]) -> Node:
    """Let collectives not wait for what computes their input."""
    return replace(node, after=()) if node.kind is NodeKind.COLLECTIVE else node


def unheld(node: Node, nodes: Sequence[Node]) -> Node:
    """Let kernels not wait for collectives."""
    if node.kind in HOSTS or node.kind is NodeKind.COLLECTIVE:
        return node
    kept = tuple(i for i in node.after if nodes[i].kind is not NodeKind.COLLECTIVE)
    return replace(node, after=kept)


def free_threads(node: Node, nodes: Sequence[Node]) -> Node:
    """Let host threads not take turns."""
    if node.kind not in HOSTS:
        return node
    kept = (i for i in node.after if nodes[i].kind not in HOSTS or same_thread(node, nodes[i]))
    return replace(node, after=tuple(kept))


def same_thread(node: Node, other: Node) -> bool:
    """Whether two nodes are of one host thread."""
    return (node.rank, node.resource) == (other.rank, other.resource)


def hurried(node: Node, _: Sequence[Node]) -> Node:
    """Let the host take no time."""
    timed = node.kind is NodeKind.HOST and node.role is not Role.START_SKEW
    return replace(node, seconds=0.0) if timed else node


def two_queues(node: Node, _: Sequence[Node]) -> Node:
    """Give all-reduces a stream of their own."""
    reduces = node.kind is NodeKind.COLLECTIVE and node.stage is Stage.ALL_REDUCE
    return replace(node, resource="all-reduces") if reduces else node


def together(graph: ExecutionGraph) -> ExecutionGraph:
    """Let all ranks begin at once; what they launched before moves with them."""
    skew = {node.rank: node.seconds for node in graph.nodes if node.role is Role.START_SKEW}

    def shifted(node: Node) -> Node:
        if node.role is Role.START_SKEW:
            return replace(node, seconds=0.0)
        if node.launched_by is not None and graph.nodes[node.launched_by].role is Role.BEFORE_TRACE:
            return replace(node, launch_delay=max(0.0, node.launch_delay - skew[node.rank]))
        return node

    return replace(graph, nodes=[shifted(node) for node in graph.nodes])


ABLATIONS: Mapping[str, GraphChange] = {
    "no inter-rank synchronization": each_node(alone),
    "no comm-to-compute waits": each_node(unheld),
    "no producer-to-comm waits": each_node(unfed),
    "no host blocks": each_node(unblocked),
    "no host gaps": each_node(hurried),
    "no order of host threads": each_node(free_threads),
    "no start skew": together,
    "no shared FIFO": each_node(two_queues),
}


def variants(loaded: Loaded) -> dict[str, Replay]:
    """Return the replays of a run: the modes, then the ablations."""
    run = loaded.run
    made = {mode.value: replay(run, mode) for mode in Mode}
    made["algorithm1, blocked time as overhead"] = replay(
        loaded.blocks_as_overheads, Mode.ALGORITHM1
    )
    for name, change in ABLATIONS.items():
        made[name] = replay_graph(run, change(run.graph))
    made["no draining kernels"] = replay_graph(run, run.graph, drain=False)
    return made


def errors(done: Replay) -> dict[str, float]:
    """Return a replay's relative errors."""
    return {
        "makespan": done.simulated_makespan / done.measured_makespan - 1,
        "worst_step": done.worst_error,
        "mean_step": done.mean_error,
    }


def steps(made: Mapping[str, Replay]) -> list[dict[str, Any]]:
    """Return every step of every rank, measured and by mode."""
    rows = []
    for index, step in enumerate(made["graph"].steps):
        simulated = {f"{m.value}_s": made[m.value].steps[index].simulated for m in Mode}
        rows.append({
            "rank": step.rank, "step": step.step, "measured_s": step.measured, **simulated,
        })  # fmt: skip
    return rows


def cost() -> dict[str, float]:
    """Return CPU seconds and peak memory of the command on the 8-rank run."""
    command = [sys.executable, "-m", "planner", "replay", str(TRACES / SETS[0]), "--json"]
    begin = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)  # noqa: S603
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": time.perf_counter() - begin,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_memory_bytes": used.ru_maxrss * 1024.0,
    }


def overall(sets: Sequence[Mapping[str, Replay]]) -> dict[str, dict[str, float]]:
    """Return each variant's errors over the steps of all sets."""
    result = {}
    for name in sets[0]:
        off = [abs(step.error) for made in sets for step in made[name].steps]
        makespans = [abs(errors(made[name])["makespan"]) for made in sets]
        result[name] = {
            "mean_makespan": sum(makespans) / len(makespans),
            "worst_step": max(off),
            "mean_step": sum(off) / len(off),
        }
    return result


def show_set(name: str, made: Mapping[str, Replay]) -> None:
    """Print one set step by step."""
    print(f"\n{name}")
    print(f"{'rank':>6}{'step':>6}{'measured':>13}" + "".join(f"{m.value:>21}" for m in Mode))
    for row in steps(made):
        columns = [row["measured_s"] / MS]
        for mode in Mode:
            simulated = row[f"{mode.value}_s"]
            columns += [simulated / MS, simulated / row["measured_s"] - 1]
        numbers = "{:10.2f} ms{:9.2f} ms {:+8.2%}{:9.2f} ms {:+8.2%}{:9.2f} ms {:+8.2%}"
        print(f"{row['rank']:6}{row['step']:6}" + numbers.format(*columns))


def show_collectives(pairs: Sequence[CollectivePair]) -> None:
    """Print the collectives of the imported and of the synthesized graph."""
    print(f"\n{'collective':26}{'imported':>12}{'synthesized':>13}  bytes on ranks 0, 1, ...")
    for pair in pairs:
        sizes = " ".join(f"{size:,.0f}" for size in pair.imported_bytes)
        alike = "the same" if pair.same else f"not {pair.synthesized_bytes}"
        print(f"{pair.name:26}{pair.imported:>12}{pair.synthesized:>13}  {sizes}: {alike}")


def main() -> None:
    """Print the tables; with --write keep them."""
    if not TRACES.is_dir():
        sys.exit(f"no traces at ../{TRACES.relative_to(ROOT.parent)}")
    runs = [load(name) for name in SETS]
    sets = [variants(run) for run in runs]
    for run, made in zip(runs, sets, strict=True):
        show_set(run.name, made)
    summary, used = overall(sets), cost()
    pairs = side_by_side(runs[0].run.graph, synthesized())
    print(f"\n{'all sets':38}{'makespan':>10}{'worst step':>12}{'mean step':>11}")
    for name, row in summary.items():
        print(f"{name:38}" + "{:10.2%}{:12.2%}{:11.2%}".format(*row.values()))
    show_collectives(pairs)
    print(f"\n8 ranks: {used['cpu_s']:.2f} s of CPU, {used['peak_memory_bytes'] / GIB:.2f} GiB")
    if "--write" in sys.argv:
        kept = {
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "date": date.today().isoformat(),  # noqa: DTZ011 -- the day here
            "eight_ranks": used,
            "collectives": [{**asdict(pair), "same": pair.same} for pair in pairs],
            "overall": summary,
            "sets": [
                {
                    "name": run.name,
                    "waits_recorded": run.run.waits.recorded,
                    "waits_inferred": run.run.waits.inferred,
                    "num_pinned": run.run.num_pinned,
                    "makespan": {
                        "measured_s": made["graph"].measured_makespan,
                        **{f"{m.value}_s": made[m.value].simulated_makespan for m in Mode},
                    },
                    "errors": {name: errors(done) for name, done in made.items()},
                    "steps": steps(made),
                }
                for run, made in zip(runs, sets, strict=True)
            ],
        }
        write(RESULTS, kept)


if __name__ == "__main__":
    main()
