"""Writing a ``HardwareProfile`` as YAML text, compact and in a fixed order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from json import dumps
from textwrap import fill
from typing import TYPE_CHECKING

from costmodel.base.units import US
from costmodel.domain.hardware import (
    CollectiveCurve,
    Device,
    GemmEfficiency,
    Gpu,
    HardwareProfile,
    Host,
    KernelFamily,
    Link,
    Source,
    Spine,
    UnalignedRows,
)
from costmodel.domain.time_correction import TimeCorrection
from costmodel.domain.traced import TracedTimes
from planner.files.profile_units import quantity_text

if TYPE_CHECKING:
    from pydantic import BaseModel

OVERHEADS = {
    "t1_us": "before", "t2_us": "lead", "t3_us": "tail", "t4_us": "call", "t5_us": "between",
}  # fmt: skip
"""Field of ``OperatorOverheads`` for each key of a traced operator in a file."""
_LISTS = {"shapes", "unaligned"}
"""Fields of ``GemmEfficiency`` that are lists."""
_WIDTH = 99


def profile_text(profile: HardwareProfile) -> str:
    """Return a profile as YAML, every number with its source; ``load_profile`` reads it back."""
    from planner.files import profile_schema as schema

    return "\n".join([
        f"name: {dumps(profile.name)}",
        *([] if profile.device is Device.CUDA else [f"device: {profile.device}"]),
        _entry("gpus_per_node", profile.gpus_per_node, "gpus_per_node", profile).lstrip(),
        "gpu:",
        f"  name: {dumps(profile.gpu.name)}",
        *_section(schema.GpuSection, profile.gpu, "gpu", profile),
        "embedding:",
        *_section(schema.EmbeddingSection, profile.gpu, "gpu", profile),
        "host:",
        *_section(schema.HostSection, profile.host, "host", profile),
        "intra_node:",
        *_section(schema.LinkSection, profile.intra_node, "intra_node", profile),
        "inter_node:",
        *_section(schema.LinkSection, profile.inter_node, "inter_node", profile),
        *_spine(profile),
        *_own_times(profile),
        fitted_text(profile.gpu.gemm, profile.curves, profile.sources, profile.families)
        + _traced(profile.traced),
    ])


def _spine(profile: HardwareProfile) -> Iterator[str]:
    """Yield the lines of the network beyond a block of nodes, if it is another one."""
    from planner.files import profile_schema as schema

    if profile.spine is not None:
        yield "spine:"
        yield from _section(schema.SpineSection, profile.spine, "spine", profile)


def _own_times(profile: HardwareProfile) -> Iterator[str]:
    """Yield the lines of what single operators and backwards of a core take."""
    times, costs = profile.gpu.element_times, profile.gpu.update_costs
    if costs:
        yield from _section_of("updates", "update_costs", profile)
        for name, cost in costs.items():
            each = ", ".join(
                f"{field}: {quantity_text(seconds, field)}"
                for field, seconds in cost._asdict().items()
                if seconds
            )
            yield f"    {name}: {{{each}}}"
    if times:
        yield from _section_of("operators", "element_times", profile)
        yield from (f"    {name}: {quantity_text(t, 'element_time')}" for name, t in times.items())


def _section_of(section: str, field: str, profile: HardwareProfile) -> Iterator[str]:
    """Yield the first lines of a section that holds one field of the GPU, and its source."""
    path = f"gpu.{field}"
    yield f"{section}:"
    yield f"  source: {dumps(profile.sources.get(path, 'not said'))}"
    if path in profile.kinds:
        yield f"  kind: {profile.kinds[path]}"
    yield f"  {field}:"


def fitted_text(
    gemm: Mapping[str, GemmEfficiency],
    curves: Sequence[CollectiveCurve],
    sources: Mapping[str, str],
    families: Mapping[str, KernelFamily],
) -> str:
    """Return ``families``, ``gemm`` and ``collectives`` as YAML, the sections that fits rewrite."""
    lines = ["families:"] if families else []
    for name, family in families.items():
        lines += _family(name, family)
    lines.append("gemm:" if gemm else "gemm: {}")
    for data_type, constants in gemm.items():
        lines += [f"  {data_type}:", f"    source: {dumps(sources[f'gpu.gemm.{data_type}'])}"]
        lines += [f"    {each}" for each in _fitted(constants)]
        if constants.unaligned:
            lines.append("    unaligned:")
        lines += [f"      - {{{', '.join(_fitted(rows))}}}" for rows in constants.unaligned]
        if constants.shapes:
            lines.append(f"    shapes: [{', '.join(map(_pair, constants.shapes))}]")
    lines.append("collectives:" if curves else "collectives: []")
    anchors: dict[tuple[float, ...], str] = {}
    for curve in curves:
        lines += _curve(curve, anchors)
    return "\n".join(lines) + "\n"


def _fitted(constants: GemmEfficiency | UnalignedRows) -> Iterator[str]:
    """Yield the constants that are no lists, and not the default, each behind its name."""
    for item in fields(constants):
        value = getattr(constants, item.name)
        if item.name not in _LISTS and value != item.default:
            yield f"{item.name}: {_plain(value, item.name)}"


def _traced(traced: TracedTimes) -> str:
    """Return times by name as YAML lists: kernel names are too long for YAML keys."""
    if traced == TracedTimes():
        return ""
    lines = ["traced:", f"  operators:{'' if traced.operators else ' []'}"]
    for row in traced.operators.values():
        times = ", ".join(
            f"{short}: {getattr(row, name) / US:.6g}" for short, name in OVERHEADS.items()
        )
        lines.append(f"    - {{name: {dumps(row.name)}, count: {row.count}, {times}}}")
    lines.append(f"  kernels:{'' if traced.kernels else ' []'}")
    for kernel in traced.kernels.values():
        time = f"us: {kernel.median / US:.6g}"
        lines.append(f"    - {{name: {dumps(kernel.name)}, count: {kernel.count}, {time}}}")
    return "\n".join(lines) + "\n"


def _family(name: str, family: KernelFamily) -> list[str]:
    ranges = (f"{quantity}: {_pair(pair)}" for quantity, pair in family.ranges.items())
    return [
        f"  {name}:",
        f"    source: {family.source}",
        f"    origin: {dumps(family.origin)}",
        *_accuracy(family),
        *([f"    ranges: {{{', '.join(ranges)}}}"] if family.ranges else []),
    ]


def _accuracy(fit: KernelFamily | CollectiveCurve) -> list[str]:
    """Return the lines for number of points and errors, where there are any."""
    errors = {"error": fit.error, "error_p90": fit.error_p90}
    return [
        *([f"    num_points: {fit.num_points}"] if fit.num_points else []),
        *(f"    {name}: {error:.4g}" for name, error in errors.items() if error is not None),
    ]


def _pair(pair: Sequence[float]) -> str:
    return f"[{pair[0]:.12g}, {pair[1]:.12g}]"


def _curve(curve: CollectiveCurve, anchors: dict[tuple[float, ...], str]) -> list[str]:
    """Return the lines of a curve; message sizes that an earlier curve has refer to that one's."""
    sizes = tuple(size for size, _ in curve.knots)
    if sizes in anchors:
        size_lines = [f"    bytes: *{anchors[sizes]}"]
    else:
        anchors[sizes] = f"sizes{len(anchors) + 1}"
        size_lines = _flow(f"    bytes: &{anchors[sizes]} ", (f"{size:.12g}" for size in sizes))
    return [
        f"  - op: {curve.op}",
        f"    num_ranks: {curve.num_ranks}",
        *([f"    num_nodes: {curve.num_nodes}"] if curve.num_nodes > 1 else []),
        f"    source: {curve.source}",
        f"    origin: {dumps(curve.origin)}",
        *_accuracy(curve),
        *([f"    last_measured: {curve.last_measured:.12g}"] if curve.last_measured else []),
        *size_lines,
        *_flow("    us: ", (f"{time / US:.12g}" for _, time in curve.knots)),
    ]


def _flow(start: str, items: Iterable[str]) -> list[str]:
    text = start + "[" + ", ".join(items) + "]"
    return [fill(text, _WIDTH, subsequent_indent=" " * 6, break_long_words=False)]


def _section(
    section: "type[BaseModel]",
    values: Gpu | Host | Link | Spine,
    path: str,
    profile: HardwareProfile,
) -> list[str]:
    """Return the lines of a section's numbers; optional ones only if they are not the default."""
    defaults = {item.name: item.default for item in fields(values)}
    return [
        _entry(name, getattr(values, name), f"{path}.{name}", profile)
        for name, written in section.model_fields.items()
        if name != "name" and (written.is_required() or getattr(values, name) != defaults[name])
    ]


def _entry(name: str, value: float | TimeCorrection, path: str, profile: HardwareProfile) -> str:
    """Return the line of one number, with its source if it has one."""
    text = _plain(value, name)
    source = profile.sources.get(path)
    if source is None:
        return f"  {name}: {text}"
    kind = f"kind: {profile.kinds[path]}, " if path in profile.kinds else ""
    return f"  {name}: {{value: {text}, {kind}source: {dumps(source)}}}"


def _plain(value: float | tuple[float, ...] | Source | TimeCorrection, name: str) -> str:
    """Return a value as YAML, in the unit that the name of its field ends in."""
    if isinstance(value, TimeCorrection):
        return f"[{', '.join(_pair((a / US, b / US)) for a, b in value.knots)}]"
    if isinstance(value, Source):
        return value.value
    if isinstance(value, tuple):
        return f"[{', '.join(f'{item:.12g}' for item in value)}]"
    return quantity_text(value, name)
