"""What some tests need that is not everywhere: without it they are skipped."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.fitting.sources import DATA

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")
needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
needs_torchrec = pytest.mark.skipif(
    find_spec("torchrec") is None, reason="torchrec is not installed"
)
