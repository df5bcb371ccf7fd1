"""Which fields of two plan files are said to differ."""

from bench.same_plans import PlanCommand, PlanWritten, compared, fields_of, summed_up

CASE = PlanCommand("w.yaml", "h100-sxm", 8, 0, 2_000)
PLAN = {"step_time_s": 0.5, "search_time_s": 1.0, "tables": [{"name": "a", "rank": 3}]}


def test_clocks_are_left_out_and_nothing_else() -> None:
    assert dict(fields_of(PLAN)) == {"step_time_s": 0.5, "tables.0.name": "a", "tables.0.rank": 3}


def test_a_table_on_another_rank_is_another_plan() -> None:
    moved = {**PLAN, "tables": [{"name": "a", "rank": 4}]}
    row = compared(
        CASE, PlanWritten(dict(fields_of(PLAN)), 2.0), PlanWritten(dict(fields_of(moved)), 1.0)
    )
    assert not row["same_plan"]
    assert row["differ"] == {"tables.0.rank": [3, 4]}


def test_other_words_of_a_note_are_the_same_plan() -> None:
    before, after = ({**PLAN, "notes": [text]} for text in ("only GPUs", "GPUs"))
    row = compared(
        CASE, PlanWritten(dict(fields_of(before)), 1.0), PlanWritten(dict(fields_of(after)), 2.0)
    )
    assert row["same_plan"]
    assert summed_up([row]) == {
        "commands": 1,
        "same_plans": 1,
        "fields_that_differ": {"notes.0": 1},
        "cpu_ratio": 2.0,
    }
