"""What reads files that others made, and what an input may do there: nothing but a PlannerError."""

import contextlib
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from bench.robustness.attack_files import CORPUS
from bench.robustness.commands import ran
from bench.robustness.mutations import NASTY, mutated
from bench.robustness.pairs import MUTATED, pair
from bench.robustness.served import odd, served
from bench.robustness.system_errors import drawn, failing
from costmodel.base.errors import PlannerError

HANGS = 20.0
"""Seconds after which an input counts as hanging: most take milliseconds, on a shared machine."""


@dataclass(frozen=True, slots=True)
class Parser:
    """Something that reads files, and the endings of those in the corpus that it reads."""

    read: Callable[[Path], object]
    corpus: tuple[str, ...]


class HangError(Exception):
    """An input took too long."""


def _workload(path: Path) -> object:
    """Read a workload, and plan it, as numbers that are too large are to be refused when read."""
    import planner

    return planner.plan(path, gpus=2, sharder="naive", baseline="none", time_limit=0.01)


def _plan(path: Path) -> object:
    import planner

    return planner.load_plan(path)


def _profile(path: Path) -> object:
    from planner.files.profiles import load_profile

    return load_profile(path)


def _measurements(path: Path) -> object:
    from planner.calibration.records import read_measurements

    return read_measurements(path)


def _ids(path: Path) -> object:
    from planner.inspection.inspect import inspect
    from planner.inspection.writing import fragment

    return fragment(inspect(path), embedding_dim=8)


def _profiler_trace(path: Path) -> object:
    from planner.traces.replay.replay_report import replay_report

    return replay_report(str(path), mode="graph", execution=None, questions=())


def _execution_trace(path: Path) -> object:
    from planner.traces.execution.communications import execution_traces
    from planner.traces.predict.prediction import predict
    from planner.traces.trace_files import read_documents

    made = predict(path, CORPUS / "cpu_kernels.yaml")
    return execution_traces(read_documents(path)), made


def _torchrec(path: Path) -> object:
    from planner.torchrec.exchange import take_torchrec_plan
    from planner.torchrec.plan_reading import read_torchrec_file

    with contextlib.suppress(PlannerError):
        import planner
        from planner.verbs.topologies import make_topology

        workload = planner.load_workload(CORPUS / "torchrec.yaml")
        topology = make_topology(planner.load_profile("h100-sxm"), 2)
        return take_torchrec_plan(read_torchrec_file(path), workload, topology)
    return None


def _settings(path: Path) -> object:
    from planner.environment.settings import resolve

    (path.parent / "planner.toml").write_bytes(path.read_bytes())
    return resolve({}, {}, path.parent)


def _command(path: Path) -> object:
    """Run the command line that a file has, a word in every line."""
    return ran(path.read_text(encoding="utf-8", errors="replace").split("\n"), path.parent)


PARSERS: Mapping[str, Parser] = {
    "workload": Parser(_workload, ("workload.yaml", "torchrec.yaml", "rich.yaml")),
    "plan": Parser(_plan, ("plan.json",)),
    "profile": Parser(_profile, ("profile.yaml",)),
    "measurements": Parser(_measurements, ("measurements.jsonl",)),
    "ids": Parser(_ids, ("ids.npz", "ids.npy", "ids.pt", "kjt.pt", "ids.npz.gz")),
    "columns of logs": Parser(
        _ids, ("ids.parquet", "log.parquet", "log.feather", "plain.feather", "log.orc")
    ),
    "texts of logs": Parser(_ids, ("log.csv", "log.tsv", "ratings.dat", "log.jsonl", "log.csv.gz")),
    "profiler trace": Parser(_profiler_trace, ("kineto",)),
    "execution trace": Parser(_execution_trace, ("execution.json",)),
    "torchrec plan": Parser(_torchrec, ("torchrec.pt",)),
    "settings": Parser(_settings, ("planner.toml",)),
    "command line": Parser(_command, ("plan.words", "simulate.words", "estimate.words")),
    "pairs": Parser(pair, MUTATED),
    "requests": Parser(served, ("page.http", "move.http", "undo.http", "save.http")),
    "system errors": Parser(failing, ("commands.system",)),
}


def warm_up(parser: Parser) -> None:
    """Import what a parser needs: torch takes longer on a busy machine than any input may."""
    for name in parser.corpus:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            path, data = Path(folder, "trace.json" if name == "kineto" else name), _file(name)
            path.write_bytes(drawn(data, Random(0)) if name.endswith(".system") else data)  # noqa: S311
            with contextlib.suppress(PlannerError):
                parser.read(path)


def attempt(parser: Parser, data: bytes, name: str) -> str | None:
    """Let a parser read an input; return what went wrong, as its last frame; None: nothing."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        try:
            with _limited():
                parser.read(path)
        except PlannerError:
            return None
        except HangError:
            return "hang"
        except Exception as error:  # noqa: BLE001 - all others are what is looked for
            return _where(error)
    return None


def _where(error: Exception) -> str:
    trace, last = error.__traceback__, "?"
    while trace is not None:
        code = trace.tb_frame.f_code
        if "/bench/" not in code.co_filename and any(
            part in code.co_filename for part in ("/planner/", "/costmodel/", "/sharders/")
        ):
            last = f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {last}: {str(error)[:80]}"


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def inputs(parser: Parser, seeds: range) -> Iterator[tuple[int, str, bytes]]:
    """Yield mutated files of a parser's corpus, with their seeds and names."""
    corpus = {name: _file(name) for name in parser.corpus}
    everything = [path.read_bytes() for path in sorted(CORPUS.iterdir()) if path.is_file()]
    for seed in seeds:
        rng = Random(seed)  # noqa: S311 - the same inputs every time
        name = rng.choice(sorted(corpus))
        data = corpus[name]
        if name.endswith(".words"):
            data = _words(data, rng)
        elif name.endswith(".http"):
            data = odd(data, everything, rng)
        else:
            data = drawn(data, rng) if name.endswith(".system") else mutated(data, everything, rng)
        yield seed, "trace.json" if name == "kineto" else name, data


def _file(name: str) -> bytes:
    path = CORPUS / name
    return (path.with_suffix(".json") if name == "kineto" else path).read_bytes()


def _words(data: bytes, rng: Random) -> bytes:
    """Replace, drop, repeat or swap words of a command line."""
    words = data.decode().split("\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(words))
        action = rng.randrange(4)
        if action == 0:
            words[at] = rng.choice(NASTY)
        elif action == 1 and len(words) > 1:
            del words[at]
        elif action == 2:
            words.insert(at, rng.choice(words))
        else:
            other = rng.randrange(len(words))
            words[at], words[other] = words[other], words[at]
    return "\n".join(words).encode()
