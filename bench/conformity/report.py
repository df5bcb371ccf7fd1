"""The matrix as Markdown: cells, what was compared, what is left, and what differs on CUDA."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.conformity.known import KNOWN
from bench.conformity.runs import Result

ON_CUDA = Path(__file__).with_name("on_cuda.md")
"""What the CPU's steps cannot vouch for; the 8 x V100 trace has the CUDA side of the first three,
in ``tests/costmodel/step/test_against_trace.py``."""


def is_same(result: Result) -> bool:
    """Tell whether nothing is left between two steps."""
    return not isinstance(result.trained, str) and not result.differences and result.same_order


def text(results: Sequence[Result], versions: str) -> str:
    """Return the committed table."""
    same = sum(map(is_same, results))
    lines = [
        "# Real steps beside synthesized ones, operator by operator",
        "",
        f"`python -m bench.conformity`; {versions}.",
        f"{same} of {len(results)} cells have the same operators, bytes and order on every rank.",
        "",
        "| cell | ranks | operators | of them collectives | differences |",
        "|---|---|---|---|---|",
        *(_line(each) for each in results),
        "",
        ON_CUDA.read_text(encoding="utf-8"),
    ]
    return "\n".join(lines)


def _line(result: Result) -> str:
    cell = result.cell
    ranks = f"{cell.world_size // cell.local_world_size} x {cell.local_world_size}"
    facts = [fact for rank in result.synthesized for fact in rank]
    sent = sum(fact.kind.startswith(("all_", "reduce_")) for fact in facts)
    return f"| {cell.name} | {ranks} | {len(facts)} | {sent} | {'; '.join(_left(result))} |"


def _left(result: Result) -> Iterator[str]:
    if is_same(result):
        yield "none"
        return
    known = KNOWN.get(result.cell.name)
    if known:
        yield known
    elif isinstance(result.trained, str):
        yield f"not run: {result.trained}"
    else:
        yield from map(str, result.differences)
        if not result.same_order:
            yield "another order"
