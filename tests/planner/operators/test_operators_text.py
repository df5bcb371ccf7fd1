from dense_operators import operator

from costmodel.operators.operator_families import OperatorFamily
from costmodel.operators.operator_list import BatchSize, OperatorList
from planner.operators.operators_text import family_works


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
