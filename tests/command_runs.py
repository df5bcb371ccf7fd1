"""What a command did that a test ran: the fixture ``run`` of ``tests/planner/cli``."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.out)


Command: TypeAlias = Callable[..., Run]
"""Runs a command by its arguments."""
