"""Some cells of the conformity matrix, trained; the whole of it is `python -m bench.conformity`."""

import pytest

from bench.conformity.cells import cells
from bench.conformity.facts import Fact, differences, order
from bench.conformity.known import KNOWN
from bench.conformity.report import is_same, text
from bench.conformity.runs import Result, run

SOME = (
    "all types, 2 x 2",
    "column_wise + row_wise",
    "data_parallel + table_wise",
    "row_wise, fp16 and fp32",
    "row_wise, fp8 codecs",
    "row_wise, mean",
    "row_wise, unpooled",
    "row_wise, weighted",
    "table_row_wise, fp16 codecs, 2 x 2",
    "table_wise, all kernels",
    "table_wise, int8 codecs",
    "table_wise, sum and mean",
    "table_wise, three modules",
    "optimizer adam",
)


@pytest.mark.slow
def test_synthesized_steps_have_the_operators_of_real_ones() -> None:
    pytest.importorskip("torchrec", exc_type=ImportError)
    results = run([cell for cell in cells() if cell.name in SOME])
    assert len(results) == len(SOME)
    left = {each.cell.name: each.trained if isinstance(each.trained, str) else each.differences
            for each in results if not is_same(each)}  # fmt: skip
    assert left == {}


def test_every_cell_has_a_name_of_its_own_and_every_known_difference_a_cell() -> None:
    names = [cell.name for cell in cells()]
    assert len(names) == len(set(names))
    assert set(names) >= {*KNOWN, *SOME}


def test_a_fact_too_many_is_a_difference_whatever_the_order() -> None:
    cat, scale = Fact("output", "cat", 8), Fact("gradient", "scale", 16)
    assert differences([cat, scale], [scale, cat]) == ()
    (left,) = differences([cat, scale, scale], [cat, scale])
    assert str(left) == "gradient scale of 16 B: 2 real, 1 ours"


def test_pieces_of_a_copy_count_as_one() -> None:
    whole, half = Fact("gradient", "copy", 8), Fact("gradient", "copy", 4)
    assert differences([half, half], [whole]) == ()


def test_order_is_that_of_collectives_and_lookups() -> None:
    facts = [Fact("input", "all_to_all", 8), Fact("output", "cat", 8), Fact("lookup", "lookup", 0)]
    assert order(facts) == (("input", "all_to_all"), ("lookup", "lookup"))


def test_the_report_says_why_a_cell_was_not_run() -> None:
    (cell,) = (cell for cell in cells() if cell.name == "table_wise, fp8 codecs")
    one = Result(cell=cell, trained="RuntimeError", synthesized=((), ()))
    assert KNOWN[cell.name] in text([one], "versions")
