import pytest

from costmodel.base.errors import suggestion

PROFILES = ("a100-sxm-40gb", "a100-sxm-80gb", "h100-hbm2e", "h100-sxm", "h200-sxm", "l40s-pcie")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("h100-smx", "did you mean `h100-sxm`?"),
        ("H200-SXM", "did you mean `h200-sxm`?"),
        ("h200", "did you mean `h200-sxm`?"),
        ("a100", "did you mean `a100-sxm-40gb` or `a100-sxm-80gb`?"),
        ("tpu", None),
        ("", None),
    ],
)
def test_names_that_are_close_or_go_on_are_suggested(name: str, said: str | None) -> None:
    assert suggestion(name, PROFILES) == said


def test_of_many_that_go_on_the_closest_is_suggested() -> None:
    assert suggestion("Item", ("item_id", "item", "items")) == "did you mean `item`?"
