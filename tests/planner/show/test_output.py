"""The line that shows progress."""

import time

import pytest

from planner.show.output import Output, ProgressLine


def test_seconds_are_counted_while_nothing_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Output, "live", property(lambda _: True))
    with ProgressLine(Output()) as progress:
        progress.say("reading")
        time.sleep(2.3)
    shown = capsys.readouterr().err
    assert "reading" in shown
    assert "reading  " in shown
    assert shown.endswith("\x1b[K")  # the line is gone
    time.sleep(1.2)
    assert capsys.readouterr().err == ""


def test_nothing_is_shown_but_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine(Output(quiet=True)) as progress:
        progress.say("reading")
    assert capsys.readouterr().err == ""
