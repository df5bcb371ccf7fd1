"""Tests compile nothing behind their backs: what needs compiled code asks for it."""

import os

from planner.compiling import directory

os.environ["PLANNER_COMPILE"] = "off"
os.environ["NUMBA_CACHE_DIR"] = str(directory())  # never what was compiled of another version
