"""Read a simulated step: what every stream does, the critical path, and how much overlaps.

python examples/read_timeline.py
"""

from pathlib import Path

import planner

TABLES = Path(__file__).with_name("tables.yaml")
MS = 1e-3


def main() -> None:
    """Print what the timeline of a plan has."""
    planned = planner.plan(TABLES, gpus=4, hardware="a100-sxm-80gb", max_plans=500)
    timeline = planner.simulate(planned)
    print(f"step time {timeline.step_time / MS:.3f} ms; the critical path by stage:")
    for stage, seconds in timeline.breakdown().items():
        print(f"  {seconds / MS:7.3f} ms  {stage}")
    print("its longest pieces:")
    longest = sorted(timeline.critical_path(), key=lambda segment: -segment.seconds)
    for segment in longest[:5]:
        node = timeline.graph.nodes[segment.node]
        print(
            f"  {segment.seconds / MS:7.3f} ms  {segment.stage:<16} rank {node.rank}  {node.name}"
        )

    waiting, idle = timeline.waiting_times, timeline.idle_times
    for rank in range(planned.topology.world_size):
        busy = timeline.busy(rank)
        compute = sum(busy["compute"].values())
        collectives = sum(busy.get("world", {}).values())
        print(
            f"rank {rank}: kernels {compute / MS:.2f} ms, collectives {collectives / MS:.2f} ms, "
            f"waiting for peers {waiting[rank] / MS:.2f} ms, "
            f"idle {idle[rank] / MS:.2f} ms"
        )


if __name__ == "__main__":
    main()
