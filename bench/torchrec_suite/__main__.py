"""Runs TorchRec's tests of planning with our planner in the place of its own; lists what passes.

python -m bench.torchrec_suite CHECKOUT [FILE ...] [--write] [--all]

CHECKOUT is a clone of github.com/meta-pytorch/torchrec at the installed version, or near it (for
1.9.2, which has no tag, commit 376cac6ad13c3a6e7fd43cc0fe432abbc7c39f7d); its package
is not used, only its tests. Every test is run with TorchRec's own planner, too: what fails
there is not ours to mend. ``--write`` puts the list into bench/results/torchrec_tests.json; with
files named (``tests/test_mc_embedding.py``), what is kept of others stays.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.documented import ROOT
from bench.kept import provenance, read, write
from bench.torchrec_suite.reasons import REASONS

FILES = (
    "planner/tests/test_planners.py",
    "planner/tests/test_enumerators.py",
    "planner/tests/test_stats.py",
    "planner/tests/test_embedding_utils.py",
    "planner/tests/test_embeddingbag_utils.py",
    "planner/tests/test_api.py",
    "planner/tests/test_executor.py",
    "planner/tests/test_dry_run_e2e.py",
    "planner/dry_run/tests/test_api.py",
    "planner/dry_run/tests/test_init.py",
    "tests/test_sequence_model_parallel.py",
    "tests/test_mc_embedding.py",
    "tests/test_apply_optim_per_param.py",
    "tests/test_dp_grad_sync_optout.py",
    "composable/tests/test_embeddingbag.py",
)
"""Below torchrec/distributed: every test file that makes an EmbeddingShardingPlanner, or has DMP
make one, and needs no GPU; those of the executor and the orchestrators, with our provider; and the
enumerator's, of which our reading must agree."""
SLOW = (
    "tests/test_model_parallel_gloo.py",
    "tests/test_model_parallel_hierarchical.py",
    "tests/test_model_parallel_nccl.py",
    "tests/test_model_parallel_nccl_single_rank.py",
    "tests/test_model_parallel_nccl_ssd_single_gpu.py",
    "tests/test_model_parallel_gloo_gpu.py",
    "tests/test_model_parallel_gloo_gpu_single_rank.py",
)
"""With ``--all``: DMP's own tests. The first trains on processes of its own for ten minutes with
each planner, all others need GPUs."""
RESULTS = ROOT / "bench" / "results" / "torchrec_tests.json"
MOST_SECONDS = 1800
_START = "import sys, pytest, torchrec.distributed.planner; sys.exit(pytest.main(sys.argv[1:]))"
"""Some tests take the package to be there."""
_SITE = "from bench.torchrec_suite.stand_in import install\ninstall({checkout!r}, ours={ours})\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTest:
    """How a test went."""

    test: str
    theirs: str
    """With TorchRec's planner: passed, failed, skipped."""
    ours: str

    @property
    def is_ours_to_explain(self) -> bool:
        """Whether it passes with TorchRec's planner, and not with ours."""
        return self.theirs == "passed" and self.ours != "passed"


def main() -> int:
    """Print the list; return 1 if a test fails without a reason that is known."""
    arguments = [each for each in sys.argv[1:] if each not in {"--write", "--all"}]
    if not arguments or not Path(arguments[0], "torchrec", "distributed").is_dir():
        print(__doc__)
        return 2
    checkout, files = Path(arguments[0]).resolve(), tuple(arguments[1:])
    files = files or FILES + SLOW * ("--all" in sys.argv)
    outcomes = list(run(checkout, files))
    for each in outcomes:
        if each.is_ours_to_explain:
            print(f"{each.ours}: {each.test}\n    {REASONS.get(each.test, 'NO REASON KNOWN')}")
    counts = {kind: sum(each.ours == kind for each in outcomes) for kind in KINDS}
    theirs = {kind: sum(each.theirs == kind for each in outcomes) for kind in KINDS}
    print(f"with our planner {counts}; with TorchRec's own {theirs}")
    if "--write" in sys.argv:
        write(RESULTS, {**_about(checkout), **_merged(read(RESULTS), outcomes, files)})
    unknown = [e for e in outcomes if e.is_ours_to_explain and e.test not in REASONS]
    return 1 if unknown else 0


KINDS = ("passed", "failed", "skipped")


def run(checkout: Path, files: Sequence[str]) -> Iterator[SuiteTest]:
    """Yield how every test of some files went."""
    for file in files:
        theirs, ours = (_results(checkout, file, ours=flag) for flag in (False, True))
        for test in theirs | ours:
            yield SuiteTest(
                test=test, theirs=theirs.get(test, "failed"), ours=ours.get(test, "failed")
            )


def _results(checkout: Path, file: str, *, ours: bool) -> dict[str, str]:
    """Run a file; return how each of its tests went."""
    path = checkout / "torchrec" / "distributed" / file
    with tempfile.TemporaryDirectory() as folder:
        site = _SITE.format(checkout=str(checkout), ours=ours)
        Path(folder, "sitecustomize.py").write_text(site, encoding="utf-8")
        report = Path(folder, "report.xml")
        command = [
            sys.executable, "-c", _START, "-q", "-n0", "-p", "no:cacheprovider",
            "--import-mode=importlib", f"--rootdir={folder}", "-c", os.devnull,
            "-W", "ignore", f"--junitxml={report}", str(path),
        ]  # fmt: skip
        searched = os.pathsep.join([folder, str(ROOT)])
        try:
            subprocess.run(  # noqa: S603 - our own command
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": searched},
                timeout=MOST_SECONDS,
                check=False,
                capture_output=True,
            )
        except subprocess.TimeoutExpired:
            return {}
        if not report.exists():
            return {}
        return dict(_cases(report, file))


def _cases(report: Path, file: str) -> Iterator[tuple[str, str]]:
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        kind = "passed"
        if case.find("skipped") is not None:
            kind = "skipped"
        if case.find("failure") is not None or case.find("error") is not None:
            kind = "failed"
        group = case.get("classname", "").rpartition(".")[2]
        yield f"{file}::{group}::{case.get('name')}", kind


def _about(checkout: Path) -> dict[str, object]:
    of = subprocess.run(  # noqa: S603 - our own command
        ["git", "-C", str(checkout), "rev-parse", "HEAD"],  # noqa: S607 - the developer's git
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {
        **provenance(),
        "versions": {name: version(name) for name in ("torchrec", "torch", "fbgemm-gpu-cpu")},
        "tests_of": of.stdout.strip(),
    }


def _merged(
    kept: dict[str, Any], outcomes: Sequence[SuiteTest], files: Sequence[str]
) -> dict[str, object]:
    """Return how tests went, those of other files as they were kept."""

    def of_others(names: Iterable[str]) -> list[str]:
        return [each for each in names if each.partition("::")[0] not in files]

    ours, neither = kept["not with ours"], kept["not with either"]
    passed = [each.test for each in outcomes if each.ours == "passed"]
    explained = {e.test: REASONS.get(e.test, "") for e in outcomes if e.is_ours_to_explain}
    return {
        "passed": sorted([*of_others(kept["passed"]), *passed]),
        "not with ours": {name: ours[name] for name in of_others(ours)} | explained,
        "not with either": {name: neither[name] for name in of_others(neither)}
        | {
            each.test: each.theirs
            for each in outcomes
            if each.ours != "passed" and not each.is_ours_to_explain
        },
    }


if __name__ == "__main__":
    sys.exit(main())
