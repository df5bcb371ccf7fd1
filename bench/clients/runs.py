"""Runs a client under each planner, on two gloo ranks forked from this process."""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.clients.client import Client, RunSettings
from bench.clients.losses import largest_difference
from bench.clients.planned import plan_all
from bench.clients.rank import FOUND, LOG, prepare, redirect, run_rank
from bench.clients.watched import counted
from bench.forked_ranks import run_ranks
from bench.kept import write

RANKS = 2


def compared(client: Client, settings: RunSettings) -> dict[str, Any]:
    """Return how a client's runs went with TorchRec's planner and with ours, and how far apart."""
    prepare(client, settings)
    theirs, ours = (run(client, settings, ours=flag) for flag in (False, True))
    plans = [each.pop("shardings", {}) for each in (theirs, ours)]
    for each, plan in zip((theirs, ours), plans, strict=True):
        each["types"] = counted(plan)
        each.pop("moments")
    return {
        "theirs": theirs,
        "ours": ours,
        "sharded_otherwise": sum(plans[1].get(name) != plans[0][name] for name in plans[0]),
        "replicated_otherwise": len(replicated(plans[0]) ^ replicated(plans[1])),
        "difference": largest_difference(theirs["losses"], ours["losses"]),
    }


def replicated(plan: Mapping[str, str]) -> set[str]:
    """Return the tables that a plan replicates, which are trained by the dense optimizer."""
    return {name for name, sharding in plan.items() if sharding.startswith("data_parallel")}


def run(client: Client, settings: RunSettings, *, ours: bool) -> dict[str, Any]:
    """Return how a client's run went: planning, losses of all ranks, warnings, error."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    with TemporaryDirectory() as name:
        folder = Path(name)
        codes = run_ranks(
            lambda rank: run_rank(rank, client, settings, ours=ours, folder=folder), RANKS
        )
        ranks = {
            str(rank): json.loads(found.read_text(encoding="utf-8"))
            for rank in range(RANKS)
            if (found := folder / FOUND.format(rank)).exists()
        }
        logs = [(folder / LOG.format(rank)).read_text(encoding="utf-8") for rank in range(RANKS)]
    first = ranks.get("0", {})
    errors = [each["error"] for each in ranks.values() if each["error"]]
    if any(codes) or len(ranks) < RANKS:
        lines = "\n".join(logs).strip().splitlines() or [""]
        errors.append(f"ranks ended with {codes}: {lines[-1]}")
    return {
        **first.get("planning", {}),
        "losses": {rank: each["losses"] for rank, each in ranks.items()},
        "moments": first.get("moments", []),
        "warnings": first.get("warnings", []) if ours else [],
        "error": errors[0] if errors else "",
    }


def all_planned(client: Client, settings: RunSettings) -> list[dict[str, Any]]:
    """Return how every configuration in a client's checkout is planned, by a process of its own."""
    prepare(client, settings)
    source = settings.checkouts / client.checkout
    with TemporaryDirectory() as name:
        found, log = Path(name, "planned.json"), Path(name, "log.txt")

        def plan(_: int) -> None:
            redirect(log)
            write(found, list(plan_all(source, settings)))

        if any(run_ranks(plan, 1)):
            raise RuntimeError(log.read_text(encoding="utf-8"))
        rows: list[dict[str, Any]] = json.loads(found.read_text(encoding="utf-8"))
    return rows


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
