"""What a command makes of a mutated file, read by the commands that take such files.

A writer may refuse its input; what it writes, no reader may refuse.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from bench.robustness.commands import ran

_SEARCH = ("--gpus", "2", "--sharder", "naive", "--max-plans", "1", "--baseline", "none")
_LAWS = ("histogram", "zipf", "unique_fraction")
_NO_PLAN = 4


def pair(path: Path) -> object:
    """Let the command that takes such a file write one, and others read that."""
    return _WRITERS[path.name](path)


def _written(path: Path, *words: str) -> bool:
    """Return whether a command takes a mutated file."""
    return ran(words, path.parent).code == 0


def _read(path: Path, *words: str) -> str:
    """Run a command that must take what another wrote; no plan may fit, but that is all."""
    done = ran(words, path.parent)
    if done.code not in {0, _NO_PLAN}:
        raise ValueError(f"{words[0]} {words[1]} refuses: {done.err[:120]}")
    return done.out


def _of_workload(path: Path) -> None:
    if _written(path, "plan", path.name, *_SEARCH, "-o", "new.json"):
        _plan_is_read(path, "new.json")


def _plan_is_read(path: Path, plan: str) -> None:
    _read(path, "simulate", plan, "--trace", "trace.json")
    _read(path, "compare", plan, plan, "--json")


def _of_ids(path: Path) -> None:
    law = _LAWS[path.stat().st_size % len(_LAWS)]
    words = ("inspect", path.name, "--embedding-dim", "8", "--law", law, "-o", "new.yaml")
    if _written(path, *words):
        _read(path, "plan", "new.yaml", *_SEARCH, "-o", "new.json")


def _of_profile(path: Path) -> None:
    shown = ran(("profiles", "show", path.name), path.parent)
    if shown.code != 0:
        return
    (path.parent / "new.yaml").write_text(shown.out)
    again = _read(path, "profiles", "show", "new.yaml")
    if again != shown.out:
        raise ValueError("profiles show says something else of what it wrote")
    _read(path, "plan", "CORPUS/workload.yaml", *_SEARCH, "--hardware", "new.yaml", "-o", "a.json")


def _of_plan(path: Path) -> None:
    from costmodel.base.errors import PlannerError
    from planner.editing.edits import EditSession
    from planner.files.plans import load_plan_file
    from planner.verbs.loading import judge

    try:
        file = load_plan_file(path)
        session = EditSession(file=file, planned=judge(file), target=path.parent / "new.json")
    except PlannerError:
        return
    session.save()
    _plan_is_read(path, "new.json")


def _of_torchrec(path: Path) -> None:
    words = ("--workload", "CORPUS/torchrec.yaml", "--gpus", "2", "-o", "new.json")
    if _written(path, "torchrec", "import", path.name, *words):
        _plan_is_read(path, "new.json")
        _read(path, "torchrec", "export", "new.json", "-o", "new.pt")


_WRITERS: Mapping[str, Callable[[Path], None]] = {
    **dict.fromkeys(("workload.yaml", "rich.yaml"), _of_workload),
    **dict.fromkeys(
        ("ids.npz", "ids.pt", "kjt.pt", "ids.parquet", "log.parquet", "log.csv", "log.jsonl"),
        _of_ids,
    ),
    "profile.yaml": _of_profile,
    "plan.json": _of_plan,
    "torchrec.pt": _of_torchrec,
}
MUTATED = tuple(_WRITERS)
