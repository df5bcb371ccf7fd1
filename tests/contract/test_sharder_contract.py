from importlib import import_module

import pytest

from planner.testing import SharderContract
from sharders import SHARDERS
from sharders.problem import Sharder


@pytest.mark.parametrize("name", sorted(SHARDERS), scope="class")
class TestBuiltIns(SharderContract):
    @pytest.fixture(autouse=True)
    def _named(self, name: str) -> None:
        self.name = name

    def make_sharder(self) -> Sharder:
        module, _, attribute = SHARDERS[self.name].partition(":")
        sharder: Sharder = getattr(import_module(module), attribute)()
        return sharder
