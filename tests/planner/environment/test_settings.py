from pathlib import Path

import pytest

from costmodel.base.errors import InputError
from planner.environment.settings import parse_time, resolve


def test_flags_then_environment_then_project_then_user(tmp_path: Path) -> None:
    (tmp_path / "planner.toml").write_text('hardware = "b"\nseed = 3\n')
    (tmp_path / "user" / "planner").mkdir(parents=True)
    (tmp_path / "user" / "planner" / "config.toml").write_text(
        'hardware = "a"\ntime_limit = "2m"\n'
    )
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "user"), "PLANNER_SEED": "4"}
    settings = resolve({"sharder": "naive"}, environment, tmp_path)
    assert (settings.hardware, settings.seed, settings.sharder) == ("b", 4, "naive")
    assert settings.time_limit == 120.0
    assert settings.origins["seed"] == "PLANNER_SEED"
    assert settings.origins["sharder"] == "flag"


def test_without_any_there_are_defaults(tmp_path: Path) -> None:
    settings = resolve({}, {"HOME": str(tmp_path)}, tmp_path)
    assert settings.hardware == "h100-sxm"
    assert set(settings.origins.values()) == {"default"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hardwere = 'x'", "unknown setting `hardwere`"),
        ("seed = 'x'", "not a whole number"),
        ("seed =", "not toml"),
        ("time_limit = '0s'", "above 0"),
    ],
)
def test_what_cannot_be_read_is_an_input_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "planner.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        resolve({}, {"HOME": str(tmp_path)}, tmp_path)


def test_times() -> None:
    assert [parse_time(text) for text in ("10", "10s", "500ms", "2m")] == [10, 10, 0.5, 120]
    for text in ("", "s", "10h", "nan", "-1s", "inf"):
        with pytest.raises(ValueError, match="time"):
            parse_time(text)


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (f"[0x{'f' * 4000}]", "a list"), ("[1]", "a list"), ("{a = 1}", "a table"),
        ("true", "true or false"), ("1979-05-27", "a time"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["seed", "hardware", "time_limit"])
def test_settings_are_texts_and_numbers(tmp_path: Path, name: str, value: str, got: str) -> None:
    (tmp_path / "planner.toml").write_text(f"{name} = {value}")
    with pytest.raises(InputError, match=f"{name} must be a text or a number, got {got}"):
        resolve({}, {"HOME": str(tmp_path)}, tmp_path)


def test_a_number_that_is_too_long_is_refused_where_it_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "planner.toml").write_text(f"seed = 0x{'f' * 4000}")
    with pytest.raises(InputError, match="seed: `a number of 4817 digits` is not a whole number"):
        resolve({}, {"HOME": str(tmp_path)}, tmp_path)
