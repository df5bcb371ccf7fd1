import subprocess
import sys

import pytest

from costmodel.base.errors import MissingDependencyError
from planner import torchrec as integration
from planner.environment import extras as presence
from planner.search.plugins import TORCHREC, load_sharder, sharder_names


def test_the_module_can_be_imported_without_torch() -> None:
    script = "import sys, planner.torchrec\nassert not {'torch', 'torchrec'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", script], check=True)  # noqa: S603 - our own code


def test_a_missing_package_is_named_with_a_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "find_spec", lambda name: None if name == "torchrec" else name)
    monkeypatch.delitem(integration.__dict__, "IterationTimePlanner", raising=False)
    with pytest.raises(MissingDependencyError, match="`torchrec`") as raised:
        integration.IterationTimePlanner  # noqa: B018
    assert raised.value.hint == "pip install '.[torchrec]' in the checkout that the planner is from"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="`Planner`"):
        integration.Planner  # noqa: B018


def test_the_sharder_needs_torchrec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "find_spec", lambda name: None if name == "torchrec" else name)
    assert TORCHREC not in sharder_names()
    with pytest.raises(MissingDependencyError, match="the sharder `torchrec` needs `torchrec`"):
        load_sharder(TORCHREC)
