import re
from dataclasses import replace
from math import inf

import pytest
from test_report_text import made, sharding, written
from timelines import two_ranks

from costmodel.base.units import MS
from costmodel.domain.plan import ShardingType
from planner.verbs.alternatives import Alternatives
from planner.verbs.explanation import Explanation, TableExplanation, path_rows
from planner.verbs.what_if import Remedy
from planner.views.explain_text import explained_text, remedies_text
from planner.views.plan_columns import alternatives_text

EXPLANATION = """\
1.00 ms per step (0.90 - 1.10 ms, 90%).
1.00 ms by the models, without their errors; rank 0 is the last to finish. Critical path:
       at      took   stage            rank   limit            from
  0.00 ms   0.40 ms   lookup forward      0   HBM bandwidth    roofline
  0.40 ms   0.10 ms   all-to-all        all   link bandwidth   fitted
  0.50 ms   0.50 ms   dense forward       0   arithmetic       fitted
  How sure this is
  Its width comes from host time 50%, steps that kernels do not explain 30%
  Why these choices
    user_history    column_wise ×2    1.0 GiB, 50% of the lookups; otherwise on other ranks +1.0%, \
table_wise +20.0% (host +200 us)
    item            table_wise → 1    1.0 GiB, 50% of the lookups; otherwise row_wise needs \
more memory than the others leave
    ads             column_wise ×2    1.0 GiB, 50% of the lookups; on your `ranks`
  What would help (searched again from this plan)
    local batch 32,768  1.50 ms  +50.0%  43.7 M samples/s  1.33×  lookup forward +400 us
  What would not
    no use  1.00 ms  0.0%  32.8 M samples/s  1.00×  host +0 us
"""


def whole(explanation: Explanation) -> str:
    return written([*explained_text(explanation, 100), *remedies_text(explanation, 100)])


def test_the_whole_explanation() -> None:
    report = made()
    explanation = Explanation(
        report=report,
        last_rank=0,
        path=path_rows(two_ranks()),
        choices=(
            TableExplanation(
                sharding=sharding("user_history", ShardingType.COLUMN_WISE, 0, 1),
                weight_bytes=2**30,
                lookup_share=0.5,
                others=Alternatives(
                    ratios={"on other ranks": 1.01, "table_wise": 1.2, "row_wise": 1.3},
                    fixed=False,
                    nearest=sharding("user_history", ShardingType.TABLE_WISE, 0),
                ),
                effect="host +200 us",
            ),
            TableExplanation(
                sharding=sharding("item", ShardingType.TABLE_WISE, 1),
                weight_bytes=2**30,
                lookup_share=0.5,
                others=Alternatives(ratios={"row_wise": inf}, fixed=False),
            ),
            TableExplanation(
                sharding=sharding("ads", ShardingType.COLUMN_WISE, 1, 0),
                weight_bytes=2**30,
                lookup_share=0.5,
                others=Alternatives(ratios={}, fixed=True),
            ),
        ),
        remedies=(
            Remedy(
                change="local batch 32,768",
                step_time=1.5 * MS,
                samples_per_second=2 * 32768 / 1.5e-3,
                effect="lookup forward +400 us",
            ),
            Remedy(
                change="no use",
                step_time=1.0 * MS,
                samples_per_second=report.samples_per_second,
                effect="host +0 us",
            ),
        ),
    )
    assert whole(explanation) == EXPLANATION


def test_what_ifs_that_were_cut_short_are_marked() -> None:
    cut = Remedy(
        change="gpus=16", step_time=2 * MS, samples_per_second=1e9, effect="host", is_cut=True
    )
    explanation = Explanation(
        report=made(), last_rank=0, path=path_rows(two_ranks()), choices=(), remedies=(cut,)
    )
    text = whole(explanation)
    assert "gpus=16  ≤ 2.00 ms" in text
    assert "cut short by `--time-limit`" in text


def test_what_was_cut_short_and_does_not_help_yet_is_not_said_to_be_of_no_use() -> None:
    cut = Remedy(
        change="gpus=16", step_time=2 * MS, samples_per_second=1.0, effect="host", is_cut=True
    )
    explanation = Explanation(
        report=made(),
        last_rank=0,
        path=path_rows(two_ranks()),
        choices=(),
        remedies=(cut, replace(cut, change="no use", is_cut=False)),
    )
    unknown = "  Not searched long enough to tell (more `--time-limit` does): gpus=16\n"
    _, helpful, useless = re.split(r"  What would .*\n", whole(explanation))
    assert helpful.strip() == "nothing so far"
    useless, _, after = useless.partition(unknown)
    assert "no use" in useless
    assert "gpus=16" not in useless + after
    only = whole(replace(explanation, remedies=(cut,)))
    assert "What would not" not in only
    assert unknown in only


def test_narrow_blocks_have_their_reason() -> None:
    narrow = TableExplanation(
        sharding=sharding("user_history", ShardingType.COLUMN_WISE, 0, 1),
        weight_bytes=2**30,
        lookup_share=0.5,
        others=Alternatives(ratios={"table_wise": 1.2}, fixed=False),
        wider_ratio=1.1,
    )
    assert "table_wise +20.0%; blocks twice as wide +10.0%" in explained(narrow)


@pytest.mark.parametrize(
    ("rank", "says"),
    [
        (0, "on other ranks or row_wise is as good, though rank 0 looks up longest"),
        (1, "on other ranks or row_wise is as good: rank 1 looks up 200 us less than the busiest"),
    ],
)
def test_where_no_other_way_changes_anything_the_table_s_rank_says_why(
    rank: int, says: str
) -> None:
    free = TableExplanation(
        sharding=sharding("item", ShardingType.TABLE_WISE, rank),
        weight_bytes=2**30,
        lookup_share=0.5,
        others=Alternatives(ratios={"on other ranks": 1.0, "row_wise": 1.0001}, fixed=False),
    )
    assert says in explained(free)


def test_changes_without_a_plan_are_told_with_the_reason() -> None:
    explanation = Explanation(
        report=made(),
        last_rank=0,
        path=path_rows(two_ranks()),
        choices=(),
        unplanned=(("gpus=1", "no plan fits: the tables need 90 GiB"),),
    )
    text = whole(explanation)
    assert "What would not\n    gpus=1: no plan fits: the tables need 90 GiB\n" in text


def test_tables_beyond_the_first_are_counted() -> None:
    one = TableExplanation(
        sharding=sharding("item", ShardingType.TABLE_WISE, 1), weight_bytes=2**30, lookup_share=0.1
    )
    assert "4 more, looked up less: `--json` and `--html` have every table" in explained(
        *[one] * 10
    )


def explained(*choices: TableExplanation) -> str:
    explanation = Explanation(
        report=made(), last_rank=0, path=path_rows(two_ranks()), choices=choices
    )
    return whole(explanation)


def test_the_shortest_comes_first_and_what_does_not_fit_last() -> None:
    others = Alternatives(ratios={"row_wise": 1.1, "data_parallel": inf}, fixed=False)
    assert (
        alternatives_text(others)
        == "row_wise +10.0%, data_parallel needs more memory than the others leave"
    )


def test_a_table_without_a_choice_says_so() -> None:
    assert alternatives_text(Alternatives(ratios={}, fixed=False)) == ("no other way is allowed")
    assert alternatives_text(Alternatives(ratios={}, fixed=True)) == "on your `ranks`"
