"""Reading JSON of unknown origin, with bounds on numbers and nesting, and writing JSON."""

import json
import re
from typing import Any

MOST_DIGITS = 20
"""Most digits of a whole number; 2^64 has as many."""
_LONG = re.compile(rf"[0-9]{{{MOST_DIGITS + 1}}}")
_LONG_BYTES = re.compile(_LONG.pattern.encode())


def load_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON
    """Return the data of a JSON text.

    Raises
    ------
    ValueError
        It is no JSON (``json.JSONDecodeError``, which knows where), or not usable: why.

    """
    long = _LONG.search(text) if isinstance(text, str) else _LONG_BYTES.search(text)
    try:
        return json.loads(text, parse_int=_whole if long else None)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dump_json(
    data: object,
    *,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    only_ascii: bool = False,
    sort_keys: bool = False,
) -> str:
    """Return plain data as JSON text; all JSON of ours is made here.

    Raises
    ------
    ValueError
        A number is not one of JSON (NaN, infinity): a bug of the code that computed it.

    """
    return json.dumps(
        data,
        indent=indent,
        separators=separators,
        ensure_ascii=only_ascii,
        sort_keys=sort_keys,
        allow_nan=False,
    )


def _whole(digits: str) -> int:
    """Return a whole number of at most ``MOST_DIGITS`` digits."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits):,} digits")
    return int(digits)
