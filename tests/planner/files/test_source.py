import json
import time

import pytest
import yaml

from costmodel.base.errors import InputError, Problem
from planner.files.json_text import MOST_DIGITS
from planner.files.source import MAX_DEPTH, MOST_PROBLEMS, parse_json, parse_yaml, yaml_class
from planner.files.workload_reading import parse_workload
from planner.show.error_text import render_error

TEXT = """\
name: model
tables:
  - {name: a, rows: 40_000_000}
  - name: b
    off: no
"""


def problem_of(text: str) -> tuple[str, int | None, int | None]:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "model.yaml")
    (problem,) = caught.value.problems
    return problem.message, problem.line, problem.column


def test_data_is_plain() -> None:
    document = parse_yaml(TEXT, "model.yaml")
    assert document.data == {
        "name": "model",
        "tables": [{"name": "a", "rows": 40_000_000}, {"name": "b", "off": False}],
    }


def test_a_problem_points_at_the_value_or_its_key() -> None:
    document = parse_yaml(TEXT, "model.yaml")
    value = document.problem("", ("tables", 0, "rows"))
    key = document.problem("", ("tables", 0, "rows"), at_key=True)
    assert (value.line, value.column, value.width) == (3, 21, len("40_000_000"))
    assert (key.line, key.column, key.width) == (3, 15, len("rows"))


def test_a_path_into_nothing_points_at_what_is_there() -> None:
    problem = parse_yaml(TEXT, "model.yaml").problem("", ("tables", 1, "missing"))
    assert (problem.line, problem.column, problem.width) == (4, 5, len("name: b"))


@pytest.mark.parametrize(
    ("path", "place"),
    [(("tables", 2), (3, 3, 29)), ((0,), (1, 1, 11)), (("tables", 1, "name"), (4, 11, 1))],
)
def test_a_place_is_in_a_list_or_under_a_key(
    path: tuple[str | int, ...], place: tuple[int, int, int]
) -> None:
    problem = parse_yaml(TEXT, "model.yaml").problem("", path)
    assert (problem.line, problem.column, problem.width) == place


def test_nothing_points_into_json_that_is_no_yaml() -> None:
    deep = parse_json('{"a": ' + "[" * 60 + "]" * 60 + "}", "x.json")
    assert deep.problem("a", ("a",)) == Problem(message="a")
    assert deep.raw(("a",)) == ""


def test_raw_is_what_was_written() -> None:
    document = parse_yaml(TEXT, "model.yaml")
    assert document.raw(("tables", 1, "off")) == "no"
    assert document.raw(("tables",)) == ""


def test_digits_without_a_value_belong_to_the_number_before() -> None:
    data = parse_yaml(
        "{a: 1,000, b: 2, 003: , c: 4,000: 5, d: x,001, e: 3,01, f: [1],002}", "x"
    ).data
    assert data == {
        "a": "1,000", "b": 2, "003": None, "c": 4, "000": 5, "d": "x", "001": None, "e": 3,
        "01": None, "f": [1], "002": None,
    }  # fmt: skip


def test_json_is_yaml() -> None:
    assert parse_yaml('{"a": [1, 2.5, null, true, "x"]}', "x.json").data == {
        "a": [1, 2.5, None, True, "x"]
    }


def test_aliases_repeat_their_anchor() -> None:
    assert parse_yaml("a: &x [1]\nb: *x\n", "x").data == {"a": [1], "b": [1]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("the file is empty", None, None)),
        ("# only a comment\n", ("the file is empty", None, None)),
        ("a: 1\nb: 2\na: 3\n", ("key `a` twice", 3, 1)),
        ("a: &x {b: *x}\n", ("an alias must not contain itself", 1, 4)),
        ("a: {}\n<<: {}\n", ("merge keys are not supported", 2, 1)),
        ("a: !!python/name:os.system x\n", ("this tag is not supported", 1, 4)),
        ("a: !mine x\n", ("tag `!mine` is not supported", 1, 4)),
        ("? [1, 2]\n: 3\n", ("a key must be text", 1, 3)),
        ("a: b: c\n", ("not YAML: mapping values are not allowed in this context", 1, 5)),
        ("a: 1\n---\nb: 2\n", ("not YAML: but found another document", 2, 1)),
        ("a: 0b_\n", ("cannot read `0b_` as a number", 1, 4)),
        ("a: 1:30\n", ("`1:30` is not a number", 1, 4)),
        ("\x01", ("not YAML: control characters are not allowed", None, None)),
        (f"a: !!int {'x' * 41}", (f"cannot read `{'x' * 40}` as a number", 1, 4)),
        (f"a: 0{':00' * 14}.5", (f"`0{':00' * 13}` is not a number", 1, 4)),
        *(
            (text * 9000, ("lists or mappings are nested too deeply", None, None))
            for text in ("- ", "? ", "{a: ", "[\n", '["]",\n')
        ),
        ("[" * 60 + "]" * 60, ("nested too deeply", 1, MAX_DEPTH + 1)),
        ("{a: " * 60 + "}" * 60, ("nested too deeply", 1, 4 * MAX_DEPTH + 1)),
        ("a: 1" + "0" * MOST_DIGITS, ("a number of 21 digits is too large a number", 1, 4)),
        ("a: -" + "9" * (MOST_DIGITS + 1), ("a number of 21 digits is too large a number", 1, 4)),
    ],
)
def test_what_is_refused(text: str, expected: tuple[str, int | None, int | None]) -> None:
    assert problem_of(text) == expected


def test_as_many_digits_and_brackets_as_are_allowed_are_taken() -> None:
    number = int("9" * MOST_DIGITS)
    assert parse_yaml(f"a: {number}", "x").data == {"a": number}
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert str(parse_yaml(deep, "x").data) == deep
    quoted = "- '['\n" * MAX_DEPTH  # each of which could be one more
    assert len(parse_yaml(f"{quoted}- {deep[1:-1]}", "x").data) == MAX_DEPTH + 1


@pytest.mark.parametrize("text", ["- {a: [1]}\n" * 99, "[\n" * MAX_DEPTH + "]\n" * MAX_DEPTH])
def test_what_cannot_be_too_deep_is_parsed_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "parse", None)
    assert parse_yaml(text, "x").data


def test_numbers_of_json_have_as_many_digits_as_are_allowed() -> None:
    number = "9" * MOST_DIGITS
    assert parse_json(number, "x").data == int(number)
    with pytest.raises(InputError, match="not usable: it has a number of 21 digits"):
        parse_json(f"{number}0", "x")


def test_a_key_that_is_there_twice_was_there_first() -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml("a: 1\nb: 2\nc: 3\nb: 3\n", "x")
    assert caught.value.problems[0].hint == "first on line 2; keep one"


def test_a_tab_is_explained() -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml("a:\n\t- 1\n", "x")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (2, 1)
    assert problem.hint == "indent with spaces; YAML allows no tabs"


CLOSED = "the file ends before a bracket or a quote is closed"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a: 1\nb: [1,\n\n", CLOSED),
        ("a: 1\nb: {c:\n", CLOSED),
        ('a: 1\nb: "ab\n', CLOSED),
        ("a: 1\nb\n", None),
    ],
)
def test_a_file_that_ends_early_is_shown_where_it_ends(text: str, hint: str | None) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "x")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (2, len(text.splitlines()[1]) + 1)
    assert problem.hint == hint


def test_many_aliases_of_aliases_take_no_time() -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    assert set(parse_yaml("\n".join(lines), "x").data) == {f"a{i}" for i in range(30)}


def test_broken_json_has_a_position() -> None:
    with pytest.raises(InputError) as caught:
        parse_json('{"a": 1,\n "b" 2}', "plan.json")
    (problem,) = caught.value.problems
    assert (problem.message, problem.line, problem.column) == (
        "not JSON: expecting ':' delimiter",
        2,
        6,
    )


def test_broken_json_is_called_so_where_yaml_is_read_too() -> None:
    assert problem_of('{\n  "tables": [\n    {"name" 1}\n  ]\n}') == (
        "not JSON: expecting ':' delimiter",
        3,
        13,
    )
    assert problem_of("{a: 1, b")[0].startswith("not YAML")


def test_deep_json_is_refused() -> None:
    with pytest.raises(InputError):
        parse_json("[" * 100_000, "plan.json")


def test_thousands_of_mistakes_are_reported_as_fast_as_some() -> None:
    rows = [f"  - {{name: t{i}, num_embeddings: 10, embedding_dim: 7}}" for i in range(4_000)]
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        parse_workload("\n".join(["tables:", *rows]), "bad.yaml")
    text = render_error(caught.value)
    assert time.process_time() - start < 10  # 20 s when every mistake was compared with all others
    assert text.count("must be a multiple of 4") == 20
    assert "... and 80 more" in text
    assert "bad.yaml has 100 problems or more" in text


@pytest.mark.parametrize(
    "value",
    ['!!int ""', '!!float ""', "0x" + "f" * 20_000, "9" * 5_000, "!!bool x", "!!timestamp x",
     "1:2:3:4:5:6:7:8:9:1:2:3:4:5:6:7:8:9", "!!binary x", "!!int 0b", "1e999", "!!null x", "0o9",
     "!!int _", "!!float :", "!!int '-'"],
)  # fmt: skip
def test_any_scalar_is_a_value_or_an_error_in_words(value: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_workload(f"tables:\n  - {{name: a, num_embeddings: {value}, embedding_dim: x}}", "a")
    assert render_error(caught.value)


@pytest.mark.parametrize(
    "spelling",
    [
        *("0", "00", "01", "1.", "1.0", "1e5", "1.0e5", "1.0e+5", "1.5e-07", "1.0E+5", "10.e+3"),
        *(
            "1_0",
            "0x10",
            "0b1",
            "0o7",
            "1:30",
            "12:30:45",
            ".5",
            "-1",
            "+1",
            "-1.5",
            "1.5.2",
            "\uff19",
        ),
        *("~", "null", "yes", "on", "true", "2020-01-01", "=", "a", "''", "'1'", '"2"'),
        *("!!str 3", "!!int 4", "9" * 30),
    ],
)
def test_a_scalar_is_what_pyyaml_takes_it_for(spelling: str) -> None:
    text = f"a: {spelling}\nb: [{spelling}, {spelling}]\n{spelling}: 1\n"
    assert tags(yaml.compose(text, yaml_class("SafeLoader"))) == tags(
        yaml.compose(text, yaml.SafeLoader)
    )


@pytest.mark.parametrize("number", [1e-05, -1e-05, 1e16, 1e22, 5e-324, -2.5e-7, 0.1, 7, -7])
def test_numbers_are_read_as_programs_write_them_in_json(number: float) -> None:
    text = json.dumps({"number": number, "text": str(number)})
    data = parse_yaml(text, "a.json").data
    assert data == {"number": number, "text": str(number)}
    assert type(data["number"]) is type(number)


@pytest.mark.parametrize("name", ["1e5", "2E3", "1e", "e-5", "1e-", "1e-5a", "'1e-5'", "00e-5"])
def test_names_are_not_numbers_with_an_exponent(name: str) -> None:
    assert parse_yaml(f"name: {name}", "a.yaml").data == {"name": name.strip("'")}


def tags(node: yaml.Node) -> list[str]:
    parts = node.value if isinstance(node.value, list) else []
    inside = [part for each in parts for part in (each if isinstance(each, tuple) else (each,))]
    return [node.tag, *(tag for part in inside for tag in tags(part))]


def test_no_more_problems_are_noted_than_are_of_use() -> None:
    with pytest.raises(InputError) as refused:
        parse_yaml("- !mine x\n" * (MOST_PROBLEMS + 1), "x")
    assert len(refused.value.problems) == MOST_PROBLEMS


def test_a_number_that_cannot_be_is_told_of_each_time() -> None:
    with pytest.raises(InputError) as refused:
        parse_yaml(f"a: {'9' * 400}\nb: {'9' * 400}\n", "numbers.yaml")
    assert [problem.line for problem in refused.value.problems] == [1, 2]
