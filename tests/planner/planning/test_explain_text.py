from test_report_text import made, sharding, written
from timelines import two_ranks

from costmodel.base.units import MS
from costmodel.domain.plan import ShardingType
from planner.planning.explain_text import explanation_text
from planner.planning.explanation import Explanation, Remedy, TableExplanation, path_rows

EXPLANATION = """\
1.00 ms as predicted; rank 0 is the last to finish. Critical path:
       at      took   stage            rank   bound by         from
  0.00 ms   0.40 ms   lookup forward      0   HBM bandwidth    roofline
  0.40 ms   0.10 ms   all-to-all        all   link bandwidth   fitted
  0.50 ms   0.50 ms   dense forward       0   arithmetic       fitted
  Why these choices
    user_history    column_wise ×2    its lookups alone take 600 us, the mean rank's 300 us; \
whole: +20.0%
    item            table_wise → 1    its lookups take 100 us; all of the mean rank's take 300 us
    ads             column_wise ×2    your `ranks`; its lookups take 100 us, the mean rank's 300 us
  What would help
    local batch 32,768  1.50 ms  +50.0%  43.7 M samples/s  1.33×  lookup forward +400 us
"""


def test_the_whole_explanation() -> None:
    report = made()
    explanation = Explanation(
        report=report,
        last_rank=0,
        path=path_rows(two_ranks()),
        choices=(
            TableExplanation(
                sharding=sharding("user_history", ShardingType.COLUMN_WISE, 0, 1),
                alone=0.6 * MS,
                mean=0.3 * MS,
                whole_step_time=1.2 * MS,
                whole_fits=True,
            ),
            TableExplanation(
                sharding=sharding("item", ShardingType.TABLE_WISE, 1),
                alone=0.1 * MS,
                mean=0.3 * MS,
                whole_step_time=None,
                whole_fits=True,
            ),
            TableExplanation(
                sharding=sharding("ads", ShardingType.COLUMN_WISE, 1, 0),
                alone=0.1 * MS,
                mean=0.3 * MS,
                whole_step_time=None,
                whole_fits=True,
                fixed=True,
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
    assert written(explanation_text(explanation, 100)) == EXPLANATION
