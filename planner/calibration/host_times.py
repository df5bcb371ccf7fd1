"""A profile with other host times than its own."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from costmodel.base.units import Seconds
from costmodel.domain.hardware import HardwareProfile, Host, Source


def with_host_times(
    base: HardwareProfile, times: Mapping[str, Seconds], origins: Mapping[str, str]
) -> HardwareProfile:
    """Return ``base`` with measured host times, by field, and their sources, by dotted field.

    Operators of lists take what others do, where ``base`` has a time of their own for another host.
    """
    theirs = {f"listed_{name}" for name in times} & {each.name for each in fields(Host)}
    names = {f"host.{name}" for name in theirs}
    numbers: dict[str, Any] = {**dict.fromkeys(theirs), **times}
    return replace(
        base,
        host=replace(base.host, **numbers),
        sources={n: each for n, each in base.sources.items() if n not in names} | {**origins},
        kinds={n: each for n, each in base.kinds.items() if n not in names}
        | dict.fromkeys(origins, Source.MEASURED),
    )
