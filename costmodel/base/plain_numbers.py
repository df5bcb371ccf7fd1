"""Numbers as Python has them, whoever they come from."""

from dataclasses import fields
from typing import Any

import numpy as np


def make_plain(record: Any) -> None:  # noqa: ANN401 - any dataclass
    """Turn a new record's numbers of numpy into Python's: theirs overflow, and JSON has none."""
    for each in fields(record):
        value = getattr(record, each.name, None)
        if isinstance(value, np.generic):
            object.__setattr__(record, each.name, value.item())
