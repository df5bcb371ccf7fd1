"""Functions run as the code they are handed, or as what numba makes of them."""

import subprocess
import sys

from costmodel.execution.native_code import Native


def _double(number: int) -> int:
    return 2 * number


def test_without_code_numba_compiles_it_and_those_it_calls() -> None:
    inner = Native(_double)

    def outer(number: int) -> int:
        return int(inner(number)) + 1

    function = Native(outer)
    assert function(20) == 41
    assert len(function.dispatcher.overloads) == len(inner.dispatcher.overloads) == 1


def test_code_it_is_handed_is_called_instead() -> None:
    function = Native(_double)
    function.code = lambda number: 3 * number
    assert function(20) == 60
    function.code = None
    assert function(20) == 40


def test_a_search_is_imported_without_numba() -> None:
    script = "import sys, sharders.native.bursts; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0  # noqa: S603
