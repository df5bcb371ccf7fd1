"""Profiled multi-rank runs replayed with their own durations: `python -m bench.replay [--write]`.

Five public runs of TorchRec DLRMs in ``../shared/data/traces``: one step on 8 x V100 (with
execution traces), and four sets of three steps on 4 x V100, one with quantized communication. Each
is imported as an execution graph and timed by the simulator that times candidate plans, by the
paper's Algorithm 1, and by the maximum over streams of summed kernel time, every one with the same
measured durations. A step is the profiler's (host) step of one rank. Nothing is tuned: constants
of the importer are the profiler's clock, what CUDA documents, and thresholds named there.

Then every rank is replayed on its own, from its trace alone: what the absent ones did is taken from
when its collectives ended.

Ablations leave one rule of the simulator or one kind of edge out. Algorithm 1 is given the host's
own time as overheads.
"""

import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from bench.kept import print_and_keep
from costmodel.base.units import MS
from costmodel.step.graph import ExecutionGraph, Node, NodeKind
from planner.traces.execution.communications import execution_traces
from planner.traces.kineto import rank_traces
from planner.traces.replay.importing import ImportedRun, import_run
from planner.traces.replay.links import link
from planner.traces.replay.modes import Mode, Replay, StepTime, replay, replay_graph
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
    """One run, by the name of its traces."""

    name: str
    run: ImportedRun
    alone: Sequence[ImportedRun]
    """The run of every rank's trace alone, by rank."""


def load(name: str) -> Loaded:
    """Import one set of traces."""
    path = TRACES / name
    documents = read_documents(path)
    traces = rank_traces(documents, path)
    executions = execution_traces(documents)
    run, *alone = (
        import_run(some, name, link(some, executions)) for some in (traces, *([t] for t in traces))
    )
    return Loaded(name=name, run=run, alone=alone)


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


def unheld(node: Node, nodes: Sequence[Node]) -> Node:
    """Let kernels not wait for collectives."""
    if node.kind in HOSTS or node.kind is NodeKind.COLLECTIVE:
        return node
    kept = tuple(i for i in node.after if nodes[i].kind is not NodeKind.COLLECTIVE)
    return replace(node, after=kept)


ABLATIONS: Mapping[str, GraphChange] = {
    "no inter-rank synchronization": each_node(alone),
    "no comm-to-compute waits": each_node(unheld),
    "no host blocks": each_node(unblocked),
}


def variants(loaded: Loaded) -> dict[str, Replay]:
    """Return the replays of a run: the modes, then the ablations."""
    run = loaded.run
    made = {mode.value: replay(run, mode) for mode in Mode}
    for name, change in ABLATIONS.items():
        made[name] = replay_graph(run, change(run.graph))
    return made


def alone_steps(loaded: Loaded) -> list[StepTime]:
    """Return the steps of every rank replayed on its own, in the order of those of all."""
    steps = {(s.rank, s.step): s for run in loaded.alone for s in replay(run).steps}
    return [steps[mark.rank, mark.step] for mark in loaded.run.marks]


def errors(done: Replay) -> dict[str, float]:
    """Return a replay's relative errors."""
    return {
        "makespan": done.simulated_makespan / done.measured_makespan - 1,
        "worst_step": done.worst_error,
        "mean_step": done.mean_error,
    }


def steps(made: Mapping[str, Replay], alone: Sequence[StepTime]) -> list[dict[str, Any]]:
    """Return every step of every rank, measured, by mode, and of the rank on its own."""
    rows = []
    for index, step in enumerate(made["graph"].steps):
        simulated = {f"{m.value}_s": made[m.value].steps[index].simulated for m in Mode}
        rows.append({
            "rank": step.rank, "step": step.step, "measured_s": step.measured, **simulated,
            "alone_s": alone[index].simulated,
        })  # fmt: skip
    return rows


def of_single_ranks(sets: Sequence[Sequence[StepTime]]) -> dict[str, float]:
    """Return the errors of ranks that are replayed on their own, over the steps of all sets."""
    off = [abs(step.error) for steps in sets for step in steps]
    return {"worst_step": max(off), "mean_step": sum(off) / len(off)}


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


def results() -> dict[str, Any]:
    """Return every variant's replays of all sets as plain data."""
    if not TRACES.is_dir():
        sys.exit(f"no traces at ../{TRACES.relative_to(ROOT.parent)}")
    runs = [load(name) for name in SETS]
    sets = [variants(run) for run in runs]
    alone = [alone_steps(run) for run in runs]
    return {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "date": date.today().isoformat(),  # noqa: DTZ011 -- the day here
        "overall": overall(sets),
        "one_rank": of_single_ranks(alone),
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
                "one_rank": of_single_ranks([own]),
                "steps": steps(made, own),
            }
            for run, made, own in zip(runs, sets, alone, strict=True)
        ],
    }


def show(found: Mapping[str, Any]) -> None:
    """Print every set step by step, and the errors over all."""
    for each in found["sets"]:
        print(f"\n{each['name']}")
        names = "".join(f"{name:>21}" for name in (*Mode, "the rank alone"))
        print(f"{'rank':>6}{'step':>6}{'measured':>13}{names}")
        for row in each["steps"]:
            columns = [row["measured_s"] / MS]
            for way in (*Mode, "alone"):
                simulated = row[f"{way}_s"]
                columns += [simulated / MS, simulated / row["measured_s"] - 1]
            numbers = "{:10.2f} ms" + "{:9.2f} ms {:+8.2%}" * (len(Mode) + 1)
            print(f"{row['rank']:6}{row['step']:6}" + numbers.format(*columns))
    print(f"\n{'all sets':38}{'makespan':>10}{'worst step':>12}{'mean step':>11}")
    for name, row in found["overall"].items():
        print(f"{name:38}" + "{:10.2%}{:12.2%}{:11.2%}".format(*row.values()))
    row = found["one_rank"]
    print(
        f"{'graph, of every rank on its own':48}{row['worst_step']:12.2%}{row['mean_step']:11.2%}"
    )


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, results, show)
