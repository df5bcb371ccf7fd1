"""One rank of a client's run: calls the client's script, and writes what was seen."""

import os
import signal
import sys
import traceback
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from bench.clients import tzrec, watched
from bench.clients.absent import stand_in_for
from bench.clients.client import CONFIGURATION, Client, RunSettings
from bench.clients.warned import warnings_kept
from planner.environment.processes import end_now, end_with
from planner.files.json_text import dump_json

MOST_SECONDS = 180
"""After which a rank ends: another one may have left it in a collective."""
LOG, FOUND = "log_{}.txt", "rank_{}.json"


def run_rank(rank: int, client: Client, settings: RunSettings, *, ours: bool, folder: Path) -> None:
    """Run a script until enough steps are trained, and write what was seen into a folder."""
    end_with(os.getppid())
    signal.alarm(MOST_SECONDS)
    redirect(folder / LOG.format(rank))
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": os.environ["WORLD_SIZE"]}
    torch.set_num_threads(1)
    seen: dict[str, Any] = {"planning": {}, "losses": [], "moments": [], "error": ""}
    _change(seen, settings, ours=ours, rank=rank)
    os.chdir(folder)
    with warnings_kept() as lines:
        try:
            _call(client, settings.checkouts / client.checkout / client.script)
        except watched.TrainingEnds:
            dist.barrier()
        except Exception as error:  # noqa: BLE001 - whatever a script raises is what is asked for
            traceback.print_exc()
            seen["error"] = f"{type(error).__name__}: {error}"
    kept = dump_json({**seen, "warnings": lines})
    (folder / FOUND.format(rank)).write_text(kept, encoding="utf-8")
    end_now()


def redirect(log: Path) -> None:
    """Let what this process prints be in a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT)
    for each in (sys.stdout, sys.stderr):
        each.flush()
        os.dup2(file, each.fileno())


def prepare(client: Client, settings: RunSettings) -> None:
    """Have this process import what is the same in all runs of a client."""
    stand_in_for(client.absent)
    if client.script.endswith(CONFIGURATION):
        source = settings.checkouts / client.checkout
        tzrec.generate_protocol(source)
        tzrec.import_main(source)


def _change(seen: dict[str, Any], settings: RunSettings, *, ours: bool, rank: int) -> None:
    """Watch planner and losses, and have weights not depend on the plan."""
    defaults = {"timeout_seconds": settings.seconds, **settings.profile}
    watched.put_planner(watched.watched_planner(seen["planning"], ours=ours, **defaults))
    watched.seed_all(settings.seed)
    watch = partial(watched.keep_losses, seen["losses"], seen["moments"], settings.steps)
    watched.begin_alike(settings.seed, rank, watch)


def _call(client: Client, script: Path) -> None:
    """Call the function of a script, or train what a configuration says."""
    if script.suffix == CONFIGURATION:
        tzrec.train(script, **client.settings)
        return
    module = _imported(script)
    for name, instead in client.replaced.items():
        of, _, value = instead.partition(":")
        setattr(module, name, getattr(import_module(of), value))
    getattr(module, client.function)(**client.settings)


def _imported(script: Path) -> ModuleType:
    sys.path.insert(0, str(script.parent))
    spec = spec_from_file_location(script.stem, script)
    if spec is None or spec.loader is None:
        raise ImportError(f"{script} is no module")
    module = sys.modules[script.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
