"""How verdicts are told apart, and what was kept of them."""

import json

from bench.verdict_flips import OUT, FlipRun, flips


def said(text: str) -> FlipRun:
    return FlipRun(seed=0, limit=5.0, busy=False, said=text)


def test_numbers_are_no_other_verdict_and_names_are() -> None:
    runs = [said("slower by 3.4%, P 83%"), said("slower by 3.9%, P >99%"), said("as long, P 50%")]
    found = flips(runs)
    assert (found["runs"], found["ways"], found["flips"]) == (3, 2, 1)


def test_too_little_searched_is_no_flip() -> None:
    found = flips([said("slower, P 83%"), said("Not searched enough to tell.")])
    assert (found["too_little_searched"], found["flips"]) == (1, 0)


def test_verdicts_come_out_alike_more_often_than_before() -> None:
    kept = json.loads(OUT.read_text())
    before, after = (
        sum(each["flips"] for each in kept[name]["workloads"].values())
        for name in ("before", "after")
    )
    assert after < before / 3
