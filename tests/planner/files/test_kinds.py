"""One of our files where another is needed: one sentence says which, and where it goes."""

from collections.abc import Callable

import pytest

from costmodel.base.errors import InputError
from planner.files.plans import parse_plan_file
from planner.files.profiles import parse_profile
from planner.files.workload_reading import parse_workload
from planner.show.error_text import render_error

PLAN = '{"schema_version": 1, "notes": [], "tables": [{}, {}], "workload": {"tables": []}}'
PROFILE = "name: mine\ngpu: {name: x}\nintra_node: {}\n"
REPORT = '{"schema_version": 1, "workload_name": "w", "tables": [{}]}'
SWEEP = '{"schema_version": 1, "workload_name": "w", "points": [{}]}'
FAILED = '{"schema_version": 1, "error": {"kind": "InputError"}}'
SHOWN = '{"schema_version": 1, "name": "h100-sxm", "gpu": "H100", "profile": {}}'
_JSON = "a report that `--json` prints"
WORKLOAD = "# a model\ntables:\n  - {name: a, num_embeddings: 10, embedding_dim: 4}\n"


@pytest.mark.parametrize(
    ("read", "text", "message", "hint"),
    [
        (parse_workload, PLAN, "a plan file, and a workload file", "`planner explain`"),
        (parse_workload, PROFILE, "a hardware profile, and a workload file", "`--hardware`"),
        (parse_plan_file, WORKLOAD, "a workload file, and a plan file", "`planner plan`"),
        (parse_plan_file, PROFILE, "a hardware profile, and a plan file", "`--hardware`"),
        (parse_plan_file, '{"tables": []}', "a workload file, and a plan file", "`planner plan`"),
        (parse_profile, PLAN, "a plan file, and a hardware profile", "`planner explain`"),
        (parse_plan_file, REPORT, f"{_JSON}, and a plan file", "`planner plan -o FILE`"),
        (parse_workload, REPORT, f"{_JSON}, and a workload file", "`planner plan -o FILE`"),
        (parse_plan_file, FAILED, f"{_JSON}, and a plan file", "`planner plan -o FILE`"),
        (parse_profile, SHOWN, f"{_JSON}, and a hardware profile", "`planner profiles show NAME`"),
        (parse_plan_file, SWEEP, "a sweep's own file, and a plan file", "are beside it"),
    ],
)
def test_another_file_of_ours_is_named(
    read: Callable[[str, str], object], text: str, message: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "given")
    first, second = render_error(caught.value).splitlines()
    assert first == f"error: given: this is {message} is needed"
    assert second.startswith("  hint: ")
    assert hint in second


def test_what_is_no_file_of_ours_is_no_json_where_a_plan_is_needed() -> None:
    with pytest.raises(InputError, match="not JSON"):
        parse_plan_file("item,user\n1,2\n", "ids.csv")
