"""The measurements that profiles are fitted to: `../shared/data`, beside the repository."""

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY.parent / "shared" / "data"


@cache
def rows(name: str) -> Sequence[Mapping[str, str]]:
    """Read a gzipped CSV file of the data folder; once, as benches ask for one many times."""
    with gzip.open(DATA / name, "rt", encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def author_parameters() -> Mapping[str, Any]:
    """Read the paper's authors' own fits."""
    parameters: Mapping[str, Any] = json.loads((DATA / "author_params.json").read_text("utf-8"))
    return parameters
