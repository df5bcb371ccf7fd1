"""Every rank is told which one it is, and one that fails is not missed."""

import os
import subprocess
from pathlib import Path

import pytest

from bench.forked_ranks import ROOT, command

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
RANK = """
import os, sys, pathlib
def main():
    _, rank, size, folder, *more = sys.argv
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == (rank, size)
    pathlib.Path(folder, rank).write_text(" ".join(more))
    {ends}
"""


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        ("", 0, ""),
        ("assert rank != '1', 'rank 1 fails'", 1, "AssertionError: rank 1 fails"),
        ("sys.exit(int(rank == '0'))", 1, "SystemExit: 1"),
        ("os._exit(int(rank == '2'))", 1, ""),
    ],
)
def test_ranks_run_and_one_that_fails_is_told(
    tmp_path: Path, ends: str, code: int, said: str
) -> None:
    (tmp_path / "some_rank.py").write_text(RANK.format(ends=ends))
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        command("some_rank", 3, tmp_path, "a", "b"),
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert said in done.stderr
    assert [(tmp_path / rank).read_text() for rank in "012"] == ["a b"] * 3
