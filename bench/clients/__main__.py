"""Trains public code bases with TorchRec's planner and with this one; compares their losses.

python -m bench.clients --checkouts FOLDER [CLIENT ...] [--plan-all] [--time RUNS] [--write]

FOLDER has checkouts of github.com/facebookresearch/dlrm, github.com/meta-pytorch/torchrec and
github.com/alibaba/TorchEasyRec, each by the name of its repository; a client whose checkout is not
there, or needs what is not installed, is named and left out. TorchEasyRec needs
`pip install "grpcio-tools==1.62.*" "protobuf<5" anytree pandas pyarrow safetensors scikit-learn
tensorboard` beside torchrec; its closed packages are stood in for. Three minutes, with --plan-all
five. ``--commits NAME=HASH ...`` says what checkouts are of that are no clones. ``--time RUNS``
times each client's steps under either planner, so many runs in turns, and predicts them by
``--hardware``, a profile that `planner calibrate` wrote on this machine.
"""

import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import clients_table
from bench.clients.client import CLIENTS, SOURCES, Client, RunSettings
from bench.documented import ROOT
from bench.kept import parser_of, provenance, read, write

RESULTS = ROOT / "bench" / "results" / "clients.json"


def main() -> None:
    """Run, print, and with --write keep the results."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help="a part of its name")
    parser.add_argument("--checkouts", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--commits", nargs="*", default=[], metavar="NAME=HASH")
    parser.add_argument("--steps", type=int, default=8, help="steps that are trained")
    parser.add_argument("--seconds", type=float, default=1.0, help="longest search")
    parser.add_argument("--plan-all", action="store_true", help="plan all of TorchEasyRec's, too")
    parser.add_argument("--time", type=int, default=0, metavar="RUNS", help="time steps instead")
    parser.add_argument("--hardware", default="", metavar="PROFILE", help="of this planner")
    args = parser.parse_args()
    settings = RunSettings(
        checkouts=args.checkouts.resolve(),
        steps=args.steps,
        seconds=args.seconds,
        hardware=args.hardware and str(Path(args.hardware).resolve()),
    )
    kept = read(RESULTS)
    steps = timed_steps(chosen(args.clients), settings, args.time) if args.time else {}
    found = {} if args.time else trained(chosen(args.clients), settings)
    results: dict[str, Any] = {
        **provenance(),
        "versions": {name: version(name) for name in ("torchrec", "torch", "fbgemm-gpu-cpu")},
        "commits": kept.get("commits", {}) | commits(settings.checkouts, args.commits),
        "search_seconds": settings.seconds,
        "clients": {**kept.get("clients", {}), **found},
        "configurations": kept.get("configurations", []),
        "steps": {**kept.get("steps", {}), **steps},
    }
    if args.plan_all:
        results["configurations"] = planned(settings) or results["configurations"]
    if args.write:
        write(RESULTS, results)


def chosen(names: Sequence[str]) -> Sequence[Client]:
    """Return the clients whose names have one of the parts; without any, all."""
    return [each for each in CLIENTS if not names or any(part in each.name for part in names)]


def trained(clients: Sequence[Client], settings: RunSettings) -> dict[str, Any]:
    """Train every client that can be run, and print a table of them."""
    from bench.clients.runs import compared

    found: dict[str, Any] = {}
    for client in clients:
        missing = client.missing(settings.checkouts)
        if missing:
            print(f"left out: {client.name} ({missing})")
            continue
        print(f"{client.name} ...", flush=True)
        found[client.name] = compared(client, settings)
    if found:
        print(clients_table.clients(found))
        print(clients_table.warned(found.values()))
    return found


def timed_steps(clients: Sequence[Client], settings: RunSettings, runs: int) -> dict[str, Any]:
    """Time the steps of every client that can be run, and print a table of them."""
    from bench.clients.timed import timed

    able = [each for each in clients if not each.missing(settings.checkouts)]
    found = {client.name: timed(client, settings, runs) for client in able}
    print(clients_table.steps(found))
    return found


def planned(settings: RunSettings) -> list[dict[str, Any]]:
    """Plan every configuration of TorchEasyRec, and print a table of them."""
    from bench.clients.runs import all_planned

    client = next(each for each in CLIENTS if each.checkout == "TorchEasyRec")
    missing = client.missing(settings.checkouts)
    if missing:
        print(f"left out: configurations of TorchEasyRec ({missing})")
        return []
    rows = all_planned(client, settings)
    print(clients_table.configurations(rows))
    print(clients_table.summary(rows))
    print(clients_table.warned(rows))
    return rows


def commits(checkouts: Path, given: Sequence[str]) -> dict[str, str]:
    """Return the commit of every checkout that is a clone, and those that are given."""
    found = {}
    for name in SOURCES:
        if (checkouts / name / ".git").exists():
            command = ["git", "-C", str(checkouts / name), "rev-parse", "HEAD"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own
            found[name] = done.stdout.strip()
    return found | dict(each.split("=", 1) for each in given)


if __name__ == "__main__":
    main()
