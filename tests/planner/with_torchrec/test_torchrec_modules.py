"""Modules around collections train under our plans as unsharded: real processes, gloo, on CPU."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

from test_torchrec_training import run

pytestmark = pytest.mark.slow  # processes that train

WORKER = Path(__file__).with_name("modules_worker.py")
KINDS = {
    "Remapped": "row_wise",
    "RemappedSequence": "row_wise",
    "Prioritized": "row_wise",
    "Towered": "table_row_wise",
    "Towers": "table_row_wise",
}
"""Managed collision (zero-collision hashing) of pooled and unpooled tables, prioritized exchange
(PEC), a tower and a collection of two, with what their tables are sharded by."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what rank 0 has written of every module."""
    folder = tmp_path_factory.mktemp("modules")
    run(WORKER, 2, folder)
    found: dict[str, Any] = json.loads((folder / "modules_0.json").read_text())
    return found


def of(trained: dict[str, Any], name: str) -> Any:  # noqa: ANN401 - losses and sharding types
    if name not in trained:
        pytest.skip("the installed torchrec has no such module")
    return trained[name]


@pytest.mark.parametrize("name", KINDS)
def test_a_module_trains_as_unsharded(trained: dict[str, Any], name: str) -> None:
    found = of(trained, name)
    assert found["losses"] == pytest.approx(found["reference"], abs=1e-6)
    assert found["kinds"]["other"] == KINDS[name]


@pytest.mark.parametrize("name", KINDS)
def test_the_losses_would_tell_if_its_table_were_not_trained(
    trained: dict[str, Any], name: str
) -> None:
    found = of(trained, name)
    frozen, reference = found["frozen"], found["reference"]
    assert max(abs(a - b) for a, b in zip(frozen, reference, strict=True)) > 1e-3
