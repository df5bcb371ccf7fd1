import json

import pytest

from costmodel.base.errors import (
    InfeasibleError,
    InputError,
    MissingDependencyError,
    PlanMismatchError,
    PlannerError,
    PluginError,
    Problem,
    UnknownNameError,
)
from planner.show.error_text import WIDTH, error_json, exit_code, render_error


def at(line: int, column: int, width: int, hint: str | None = None) -> Problem:
    return Problem(message="message", line=line, column=column, width=width, hint=hint)


def test_a_problem_shows_the_line_it_is_on() -> None:
    text = "\n" * 7 + "    num_embedings: 40_000_000\n"
    problem = Problem(
        message="unknown field `num_embedings`",
        line=8,
        column=5,
        width=13,
        hint="did you mean `num_embeddings`?",
    )
    other = Problem(message="missing field `tables`")
    assert render_error(InputError("tables.yaml", (problem, other), text)).splitlines() == [
        "error: unknown field `num_embedings`",
        "   --> tables.yaml:8:5",
        "    |",
        "  8 |     num_embedings: 40_000_000",
        "    |     ^^^^^^^^^^^^^ did you mean `num_embeddings`?",
        "error: missing field `tables`",
        "   --> tables.yaml",
        "error: tables.yaml has 2 problems; nothing was done",
    ]


def test_the_gutter_grows_with_the_line_number() -> None:
    lines = render_error(InputError("x", (at(1234, 1, 1),), "a\n" * 1234)).splitlines()
    assert lines[1:5] == ["    --> x:1234:1", "     |", "1234 | a", "     | ^"]


@pytest.mark.parametrize("column", [1, 60, 150, 290])
def test_a_long_line_is_cut_around_the_problem(column: int) -> None:
    line = ("-" * (column - 1) + "wrong").ljust(300, "-")
    shown, under = render_error(InputError("x", (at(1, column, 5),), line)).splitlines()[3:5]
    assert len(shown) <= WIDTH
    assert shown[under.index("^") : under.rindex("^") + 1] == "wrong"


def test_the_same_hint_is_given_once() -> None:
    problems = [Problem(message=f"`{name}` is empty", hint="copy it again") for name in "ab"]
    assert render_error(InputError("job", problems)).count("copy it again") == 1


def test_a_hint_that_does_not_fit_goes_below() -> None:
    lines = render_error(InputError("x", (at(1, 90, 3, "h" * 30),), "-" * 92)).splitlines()
    assert lines[4].endswith("^^^")
    assert lines[5] == f"  hint: {'h' * 30}"


def test_wide_characters_take_two_columns() -> None:
    lines = render_error(InputError("x", (at(1, 3, 1),), "日本x")).splitlines()
    assert lines[4] == "    |     ^"


def test_control_characters_cannot_reach_the_terminal() -> None:
    text = render_error(InputError("x", (at(1, 1, 1, "\x1b[2J"),), "\x1b[31mred\ta"))
    assert "\x1b" not in text
    assert "\t" not in text


def test_a_problem_past_the_end_has_a_place_but_no_line() -> None:
    assert render_error(InputError("x", (at(3, 1, 1),), "a\n")).splitlines()[:2] == [
        "error: message",
        "   --> x:3:1",
    ]


def test_a_file_that_cannot_be_read_is_one_line() -> None:
    error = InputError("t.yml", (Problem(message="no such file", hint="did you mean `t.yaml`?"),))
    assert render_error(error) == "error: t.yml: no such file\n  hint: did you mean `t.yaml`?"


def test_no_plan_fits() -> None:
    error = InfeasibleError(
        "no plan fits: the tables need 107.3 GiB",
        (("per GPU", "79.6 GiB HBM"), ("largest", "item_id 43.2 GiB")),
        (("--gpus 2", "15.7 GiB to spare"), ("compute_kernel: fused_uvm", "for item_id")),
    )
    assert render_error(error).splitlines() == [
        "error: no plan fits: the tables need 107.3 GiB",
        "  per GPU    79.6 GiB HBM",
        "  largest    item_id 43.2 GiB",
        "  hint: any one of these is enough",
        "    --gpus 2                     15.7 GiB to spare",
        "    compute_kernel: fused_uvm    for item_id",
    ]


def test_where_no_change_does_the_hint_says_so() -> None:
    error = InfeasibleError("no plan fits", hint="none of these was found to be enough: a; b")
    lines = ["error: no plan fits", "  hint: none of these was found to be enough: a; b"]
    assert render_error(error).splitlines() == lines


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            UnknownNameError("profile", "h10-sxm", ["h100-sxm", "v100"]),
            3,
            "error: unknown profile `h10-sxm`\n  hint: did you mean `h100-sxm`?",
        ),
        (InputError("x", (Problem(message="no such file"),)), 3, "error: x: no such file"),
        (PlanMismatchError("the plan leaves out: `a`"), 3, "error: the plan leaves out: `a`"),
        (InfeasibleError("no plan fits"), 4, "error: no plan fits"),
        (
            MissingDependencyError("torch", "calibration", "torch"),
            5,
            (
                "error: calibration needs `torch`, which is not installed\n"
                "  hint: pip install '.[torch]' in the checkout that the planner is from"
            ),
        ),
        (PluginError("mine", "no class"), 5, "error: plug-in `mine`: no class"),
    ],
)
def test_every_error_has_a_text_a_code_and_json(error: PlannerError, code: int, text: str) -> None:
    assert render_error(error) == text
    assert exit_code(error) == code
    data = json.loads(json.dumps(error_json(error)))
    assert data["exit_code"] == code
    assert data["message"] == str(error)


def test_json_has_every_problem() -> None:
    data = error_json(InputError("x", (at(1, 2, 3, "do it"), at(4, 5, 6)), ""))
    assert data["problems"] == [
        {"message": "message", "line": 1, "column": 2, "hint": "do it"},
        {"message": "message", "line": 4, "column": 5, "hint": None},
    ]
