"""Mutants that the tests of their own folder kill: `python -m bench.mutants FOLDER=NUMBER...`.

A mutant is a source file of which one operator, number or function is another: ``+`` is ``-``,
``<`` is ``<=``, ``and`` is ``or``, 1 is 2, ``min`` is ``max``. cosmic-ray finds the places and
makes the changes; a sample of them, each as likely as every other, is written into a copy of the
checkout, one at a time. The tests of the same name (``tests/costmodel/base/test_units.py`` for
``costmodel/base/units.py``) are run first, then those of the folder, without those marked slow,
that take over three seconds or that fail anyway. A mutant is killed by a test that fails, or where
tests take five times as long as they should (as those of hypothesis do that seek the least failing
example). A mutant of a module that may be compiled is run with none compiled.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
from ast import literal_eval
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Never, TypeAlias, cast

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from parso.python.tree import Name, Number
from parso.tree import NodeOrLeaf

from bench.kept import SEED, parser_of, provenance, read, write

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "mutants.json"
SWAPS = {
    "BinaryOperator": ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Pow_Mul"),
    "ComparisonOperator": (
        "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is",
    ),
    "UnaryOperator": ("Delete_USub", "Delete_Not"),
}  # fmt: skip
KINDS = (
    *(f"Replace{kind}_{swap}" for kind, swaps in SWAPS.items() for swap in swaps),
    "ReplaceAndWithOr", "ReplaceOrWithAnd", "NumberReplacer",
)  # fmt: skip
"""The operators of cosmic-ray that are tried."""
Place: TypeAlias = tuple[int, int]
OTHER_END = {"min": "max", "max": "min"}
PRELOADED = ("numpy", "pydantic", "scipy.special", "yaml")
"""What tests import anyway, and their processes so have from their parent."""
OURS = {"bench", "planner", "sharders", "costmodel"}
OPERATIONS = {"arith_expr", "term", "power"}
MOST = 100
LONG = 3.0
"""Seconds of tests that no mutant is run with."""
PATIENCE = 5.0
"""Times that tests of a mutant may take what they take without it."""
PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
PYTEST = ("-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow and not nightly")


class NotesUnfit:
    """Notes which tests take long, or fail without any mutant: a plug-in of pytest."""

    def __init__(self, path: Path, *, unchanged: bool) -> None:
        self.path, self.unchanged = path, unchanged

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test to the file."""
        if (self.unchanged and report.failed) or (report.passed and report.duration > LONG):
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")


class SwapMinMax:
    """Calls ``max`` where ``min`` is called, and the other way round: an operator of cosmic-ray."""

    @staticmethod
    def mutation_positions(node: NodeOrLeaf) -> Iterator[tuple[Place, Place]]:
        """Yield the place of a call of either."""
        if isinstance(node, Name) and node.value in OTHER_END and _next(node) == "(":
            yield node.start_pos, node.end_pos

    @staticmethod
    def mutate(node: Name, index: int) -> Name:  # noqa: ARG004 - what cosmic-ray calls
        """Return the same node with the other name."""
        node.value = OTHER_END[node.value]
        return node


def _next(node: Name) -> object:
    return node.get_next_leaf()  # type: ignore[no-untyped-call]


def operator(kind: str) -> Any:  # noqa: ANN401 - one of cosmic-ray's, or the one above
    """Return what makes mutants of a kind."""
    return SwapMinMax() if kind == "SwapMinMax" else get_operator(f"core/{kind}")()


@dataclass(frozen=True)
class Mutant:
    """A change of a source file: which of the places where a change of its kind can be made."""

    path: str
    kind: str
    occurrence: int
    line: int

    def source(self, unchanged: str) -> str:
        """Return the text of the file after the change."""
        changed: str | None = mutate_code(unchanged, operator(self.kind), self.occurrence)
        if changed is None:
            raise ValueError(f"{self.path} has no {self.kind} number {self.occurrence}")
        return changed


def mutants(path: str, source: str) -> Iterator[Mutant]:
    """Yield all mutants of a file, numbers only one larger."""
    tree = get_ast(source)
    for kind in (*KINDS, "SwapMinMax"):
        find = operator(kind).mutation_positions
        places = [(node, start[0]) for node in ast_nodes(tree) for start, _ in find(node)]
        for occurrence, (node, line) in enumerate(places):
            if _counts(node, kind, occurrence):
                yield Mutant(path, kind, occurrence, line)


def _counts(node: NodeOrLeaf, kind: str, occurrence: int) -> bool:
    """Tell whether a change is one of those tried: numbers become one larger, by 1% or more.

    What is ``*`` or ``/`` is an operator, and no sign in a list of parameters or arguments.
    """
    if kind == "NumberReplacer":
        is_small = abs(literal_eval(cast("Number", node).value)) <= MOST
        return occurrence % 2 == 0 and is_small
    parent = node.parent
    return "BinaryOperator" not in kind or (parent is not None and parent.type in OPERATIONS)


def sample(folder: str, number: int, seed: int) -> list[Mutant]:
    """Return some of all mutants of a folder of the checkout, in the order of files and lines."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    found = [mutant for path, text in texts.items() for mutant in mutants(path, text)]
    drawn = random.Random(f"{folder} {seed}").sample(found, min(number, len(found)))  # noqa: S311
    return sorted(drawn, key=lambda mutant: (mutant.path, mutant.line, mutant.kind))


@dataclass
class Copy:
    """A copy of the checkout that mutants are written into, and how long its tests take."""

    root: Path
    usual_times: dict[tuple[str, str], float] = field(default_factory=dict)
    unfit: Path = field(init=False)
    """Names of tests that are left out with the modules as they are, compiled or not."""

    def __post_init__(self) -> None:
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                target = self.root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)

    @cached_property
    def compiled(self) -> list[str]:
        """The compiled modules of the checkout."""
        tops = ("costmodel", "sharders")
        found = [path for top in tops for path in (ROOT / top).rglob("*.so")]
        return [path.relative_to(ROOT).as_posix() for path in found]

    def use_compiled(self, wanted: bool) -> None:  # noqa: FBT001 - says itself
        """Have the compiled modules, or none."""
        self.unfit = self.root / f"unfit_{'compiled' if wanted else 'interpreted'}"
        for name in self.compiled:
            target = self.root / name
            if wanted and not target.exists():
                shutil.copy2(ROOT / name, target)
            elif not wanted:
                target.unlink(missing_ok=True)

    def verdict(self, mutant: Mutant) -> str:
        """Return what became of a mutant: killed, timed out or survived."""
        path = self.root / mutant.path
        self.use_compiled(not path.with_suffix(".pxd").exists())
        unchanged = path.read_text(encoding="utf-8")
        for tests in self.tests(mutant.path):
            usual = self.usual_time(tests)
            path.write_text(mutant.source(unchanged), encoding="utf-8")
            _forget(path)
            try:
                passed = self.passes(tests, PATIENCE * usual + 5.0)
            except TimeoutError:
                return "timed out"
            finally:
                path.write_text(unchanged, encoding="utf-8")
                _forget(path)
            if not passed:
                return "killed"
        return "survived"

    def tests(self, path: str) -> list[str]:
        """Return the tests of a file, then those of its folder."""
        folder, _, name = path.rpartition("/")
        mirrored = f"tests/{folder}/test_{name}"
        return [each for each in (mirrored, f"tests/{folder}") if (self.root / each).exists()]

    def usual_time(self, tests: str) -> float:
        """Return the seconds that some tests take with no mutant, and leave out those unfit."""
        key = tests, self.unfit.name
        known = read_lines(self.unfit) if key in self.usual_times else None
        while known != read_lines(self.unfit):
            known, begin = read_lines(self.unfit), monotonic()
            self.passes(tests)
            self.usual_times[key] = monotonic() - begin
        return self.usual_times[key]

    def passes(self, tests: str, time_limit: float | None = None) -> bool:
        """Return whether some tests pass, in a process of their own."""
        child = os.fork()
        if not child:
            self._test(tests, unchanged=time_limit is None)
        begin = monotonic()
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time_limit is not None and monotonic() - begin > time_limit:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise TimeoutError
            sleep(0.01)
        return os.waitstatus_to_exitcode(ended[1]) in PASSED

    def _test(self, tests: str, *, unchanged: bool) -> Never:
        """Run tests, and end the process with what pytest returns; it has none of our modules."""
        os.setsid()
        os.chdir(self.root)
        os.environ["PYTHONPATH"] = str(self.root)
        sys.path[:] = [str(self.root), *(each for each in sys.path if each not in {"", str(ROOT)})]
        for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
            del sys.modules[name]
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        deselected = [f"--deselect={name}" for name in read_lines(self.unfit)]
        arguments = [tests, *PYTEST, *([] if unchanged else ["-x"]), *deselected]
        os._exit(pytest.main(arguments, plugins=[NotesUnfit(self.unfit, unchanged=unchanged)]))


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file; none where there is none."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _forget(path: Path) -> None:
    """Delete what Python compiled of a source: its next version may have the same size and age."""
    for each in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        each.unlink()


def _line(text: str, number: int) -> str:
    return text.splitlines()[number - 1].strip()


def tried(copy: Copy, chosen: Sequence[Mutant]) -> dict[str, Any]:
    """Try mutants; return their number, what became of them, and those that survived."""
    verdicts: Counter[str] = Counter()
    survivors = []
    for mutant in chosen:
        verdict = copy.verdict(mutant)
        verdicts[verdict] += 1
        unchanged = (ROOT / mutant.path).read_text(encoding="utf-8")
        line = _line(mutant.source(unchanged), mutant.line)
        print(f"{verdict:<9} {mutant.path}:{mutant.line}  {mutant.kind}  {line}", flush=True)
        if verdict == "survived":
            was = _line(unchanged, mutant.line)
            survivors.append({"at": f"{mutant.path}:{mutant.line}", "was": was, "mutant": line})
    share = round(1.0 - verdicts["survived"] / len(chosen), 3)
    return {
        "mutants": len(chosen), **verdicts, "share_killed": share, "survivors": survivors,
    }  # fmt: skip


def main() -> None:
    """Draw mutants of folders, try them, and with --write keep what became of them."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("folders", nargs="+", metavar="FOLDER=NUMBER")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--name", default="latest", help="what results are kept as")
    args = parser.parse_args()
    for name in PRELOADED:
        import_module(name)
    with TemporaryDirectory() as place:
        copy = Copy(Path(place))
        for each in args.folders:
            folder, _, number = each.partition("=")
            result = tried(copy, sample(folder, int(number), args.seed))
            print(f"{folder}: {result['share_killed']:.0%} of {result['mutants']} killed")
            if args.write:
                kept = read(RESULTS)
                ran = {**provenance(), "seed": str(args.seed)}
                kept.setdefault(args.name, {})[folder] = {**ran, **result}
                write(RESULTS, kept)


if __name__ == "__main__":
    main()
