from importlib import import_module

import pytest

from planner.testing import SharderContract
from sharders import SHARDERS
from sharders.problem.sharding_problem import Sharder

OTHER_OBJECTIVE = {"hugectr_auto", "hugectr_hier_auto", "table_row_wise", "torchrec_port"}
QUICK = {"naive", "random", "size_greedy", "uniform", *OTHER_OBJECTIVE}
"""Sharders that take about a second each."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in sorted(SHARDERS)
    ],
    scope="class",
)
class TestBuiltIns(SharderContract):
    @pytest.fixture(autouse=True)
    def _named(self, name: str) -> None:
        self.name = name

    def test_no_worse_than_an_unlucky_random_placement(self) -> None:
        if self.name in OTHER_OBJECTIVE:
            pytest.xfail("it minimises another objective, and may do worse by ours")
        super().test_no_worse_than_an_unlucky_random_placement()

    def make_sharder(self) -> Sharder:
        module, _, attribute = SHARDERS[self.name].partition(":")
        sharder: Sharder = getattr(import_module(module), attribute)()
        return sharder
