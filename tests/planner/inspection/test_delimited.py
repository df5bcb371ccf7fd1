"""Separators, names and types of texts, told by their first lines."""

import pytest

from planner.inspection.delimited import Layout, layout_of, looser


def told(text: str, **given: object) -> Layout:
    asked: dict[str, object] = {"separator": None, "names": None, **given}
    return layout_of(text.encode(), whole=True, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "delimiter", "names"),
    [
        ("a,b\n1,2\n3,4\n", ",", ("a", "b")),
        ("1\t2\t3\n1\t5\t3\n", "\t", ("c1", "c2", "c3")),
        ('"a";"b"\n"x";"1,5"\n"y";"2,5"\n', ";", ("a", "b")),
        ("1::2\n3::4\n", ":", ("c1", "c2")),
        ("id,genres\n1,a|b\n2,c|d\n", ",", ("id", "genres")),
        ("a|b\n1|2\n", "|", ("a", "b")),
        ("1 2\n3 4\n", " ", ("c1", "c2")),
        ("\ufeffa,b\r\n1,2\r\n", ",", ("a", "b")),
        ('a,b\n"x,y",2\n"z",3\n', ",", ("a", "b")),
        ("a,a,\n1,2,3\n", ",", ("a", "a.2", "Unnamed: 2")),
        ("68fd1e64,05db9164\n80e26c9b,68fd1e64\nfb936136,38a947a1\n", ",", ("c1", "c2")),
        ("7\n8\n8\n", "\x02", ("c1",)),
        ("user:token\tseq:token_seq\n1\t2 3\n4\t5 6\n", "\t", ("user", "seq")),
    ],
)
def test_layouts(text: str, delimiter: str, names: tuple[str, ...]) -> None:
    layout = told(text)
    assert (layout.delimiter, layout.names) == (delimiter, names)


def test_types_are_those_of_the_first_lines() -> None:
    text = (
        "whole,gap,big,half,text,time,huge\n"
        "1,,9223372036854775808,0.5,x,2024-01-02,18446744073709551616\n"
        "2,3,18446744073709551615,1,7,2024-01-03,3\n"
    )
    layout = told(text)
    assert dict(layout.types) == {
        "whole": "int64", "gap": "int64", "big": "uint64", "half": "double", "text": "binary",
        "time": "binary", "huge": "binary",
    }  # fmt: skip
    assert layout.times == {"time"}


def test_names_and_separators_may_be_given() -> None:
    layout = told("1,2\n3,4\n", names=("a", "b"))
    assert (layout.names, layout.has_header) == (("a", "b"), False)
    assert told("1,2;3\n4,5;6\n", separator=";").names == ("c1", "c2")
    with pytest.raises(ValueError, match="3 names are given for the 2 columns"):
        told("1,2\n3,4\n", names=("a", "b", "c"))


@pytest.mark.parametrize(
    "text",
    ["name: x\n  - a\n- b: [1, 2]\n", "prose of words\nin lines, some\nlong", "\0\1\2", "\n\n"],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"recorded ids|no line"):
        told(text)


def test_a_line_is_not_endless() -> None:
    with pytest.raises(ValueError, match="first line has more than"):
        layout_of(b"x" * 100, whole=False, separator=None, names=None)


@pytest.mark.parametrize(
    ("type_", "value", "then"),
    [("int64", "1.5", "double"), ("int64", "x", "binary"), ("double", "1x", "binary")],
)
def test_types_get_looser(type_: str, value: str, then: str) -> None:
    assert looser(type_, value) == then
