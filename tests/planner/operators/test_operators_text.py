from functools import partial

from dense_operators import operator, rows

from costmodel.domain.workload import DataType
from costmodel.operators.operator_families import OperatorFamily
from costmodel.operators.operator_list import BatchSize, DenseOperator, OperatorList, Size
from planner.files.profiles import load_profile
from planner.operators.operators_text import OnMachine, family_works, operators_summary

NAMES = ("h100-sxm", "cpu-gloo")


def test_operators_that_nobody_knows_are_a_kind_of_their_own() -> None:
    operators = (
        operator("mine", [(4, 5)], (4, 5)),
        operator("relu", [(4, 5)], (4, 5)),
        operator("threshold_backward", [(4, 5), (4, 5)], (4, 5)),
    )
    found = family_works(OperatorList(operators=operators, recorded=BatchSize(1)), None)
    assert [(each.family, each.forward, each.backward, each.moved) for each in found] == [
        (OperatorFamily.ELEMENTWISE, 1, 1, 5 * 80),
        (OperatorFamily.OTHER, 1, 0, 2 * 80),
    ]


def test_on_a_machine_a_list_has_what_the_machine_runs() -> None:
    def one(name: str, *inputs: int, output: int) -> DenseOperator[Size]:
        plain, given, made = operator(name, []), map(partial(rows, 8), inputs), rows(8, output)
        return DenseOperator(
            name=plain.name, direction=plain.direction, inputs=tuple(given), outputs=(made,)
        )

    dropout = (
        one("bernoulli_", 0, output=0), one("div_", 0, output=0), one("mul", -1, 0, output=1),
    )  # fmt: skip
    listed = OperatorList(operators=dropout, recorded=BatchSize(4))
    counts = [
        operators_summary(listed, BatchSize(4), machine)["num_operators"]
        for machine in (None, *(OnMachine(load_profile(each), DataType.FP32) for each in NAMES))
    ]
    assert counts == [3, 1, 3]
