"""Sizes as text."""

import pytest

from costmodel.base.units import GIB, KIB, MIB, size_text, size_texts


@pytest.mark.parametrize(
    ("size", "text"),
    [(0.0, "0.0 GiB"), (12.34 * GIB, "12.3 GiB"), (51.2 * MIB, "51.2 MiB"), (3 * KIB, "3.0 KiB")],
)
def test_a_size_is_in_the_unit_that_fits_it(size: float, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("needed", "there", "texts"),
    [
        (12.3 * GIB, 8.0 * GIB, ("12.3 GiB", "8.0 GiB")),
        (12.113 * GIB, 12.108 * GIB, ("12.113 GiB", "12.108 GiB")),
        (0.712 * GIB, 0.698 * GIB, ("0.71 GiB", "0.70 GiB")),
        (3.0000002 * GIB, 3.0000001 * GIB, ("3.000000 GiB", "3.000000 GiB")),
    ],
)
def test_what_is_needed_and_what_is_there_are_told_apart(
    needed: float, there: float, texts: tuple[str, str]
) -> None:
    assert size_texts(needed, there) == texts
