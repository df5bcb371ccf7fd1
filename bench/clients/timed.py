"""Trains clients under either planner in turns, and holds measured steps against predicted ones."""

from itertools import pairwise
from statistics import median
from typing import Any

from bench import clients_table
from bench.clients.client import Client, RunSettings
from bench.clients.rank import prepare
from bench.clients.runs import run
from bench.clients.watched import counted

_WARM_UP = 4
"""Steps of a run that are not timed."""


def timed(client: Client, settings: RunSettings, runs: int) -> dict[str, Any]:
    """Return a client's steps under TorchRec's planner and ours, so many runs each, in turns.

    A run's step is the median of its steps on rank 0 after a few to warm up: gloo's collectives
    let ranks keep pace. Seconds.
    """
    prepare(client, settings)
    found: dict[str, dict[str, Any]] = {
        name: {"measured": [], "predicted": []} for name in clients_table.PLANNERS
    }
    for _ in range(runs):
        for name in clients_table.PLANNERS:
            made = run(client, settings, ours=name == "ours")
            if made["error"]:
                return {"error": made["error"]}
            moments = made["moments"][_WARM_UP:]
            steps = [end - begin for begin, end in pairwise(moments)]
            found[name]["measured"].append(median(steps))
            found[name]["predicted"].append(made["step"])
            found[name]["types"] = counted(made["shardings"])
    return found
