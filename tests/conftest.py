"""Tests compile nothing behind their backs: what needs compiled code asks for it."""

import os

os.environ["PLANNER_COMPILE"] = "off"
