"""``planner inspect``."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from planner.cli.inspect_progress import CountingLine
from planner.cli.pages import check_page, check_stdout, html_option, write_page
from planner.cli.shared_options import COUNT, output_options
from planner.cli.values import FILE, ListOf, Pairs, parse_name
from planner.environment.interrupts import interruptible
from planner.environment.settings import parse_count
from planner.show.output import Output

if TYPE_CHECKING:
    from costmodel.domain.workload import Workload
    from planner.inspection.asked import Asked
    from planner.inspection.inspect import Inspection

DIMENSION = 64
"""Columns of an embedding where nothing says how many, for the memory that is shown."""
_LAWS = ("histogram", "zipf", "unique_fraction")
_KINDS = {
    "ids": "IDS", "raw": "RAW", "category": "CATEGORY", "label": "LABEL", "time": "TIME",
    "number": "NUMBER", "row": "ROW_NUMBER",
}  # fmt: skip
"""Names of ``planner.inspection.kinds.Kind`` by what users write."""


def _kind(text: str) -> str:
    """Return the kind that a user means."""
    if text not in _KINDS:
        raise ValueError(f"`{text}` is none of {', '.join(_KINDS)}")
    return _KINDS[text]


def _id(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"`{text[:40]}` is not a whole number") from None
    if not -(2**63) <= number < 2**63:
        raise ValueError("an id has at most 63 bits")
    return number


def _separator(text: str) -> str:
    known = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ","}.get(text.lower(), text)
    if not known or len(known.encode()) > 4 or "\0" in known or '"' in known:
        raise ValueError(f"`{text[:40]}` separates nothing: write a character, `tab` or `space`")
    return known


def _delimiter(text: str) -> str:
    known = _separator(text)
    if len(known.encode()) != len(known) or len(set(known)) > 1 or known in "\r\n":
        raise ValueError(f"`{text[:40]}` is not one character, nor one repeated as in `::`")
    return known


def _names(text: str) -> tuple[str, ...]:
    return tuple(parse_name(each) for each in text.split(","))


@click.command("inspect")
@click.argument("sources", metavar="FILE...", type=FILE, nargs=-1, required=True)
@click.option(
    "-o", "--output", "target", metavar="FILE", type=FILE, help="Write YAML of the tables."
)
@click.option(
    "--workload", "model", metavar="FILE", type=FILE,
    help="Whose tables these are: -o then writes this workload with what was counted.",
)  # fmt: skip
@click.option(
    "--embedding-dim", type=COUNT, help="Without --workload: makes what -o writes a workload."
)
@click.option(
    "--batch-size", "batch_samples", type=COUNT, metavar="N",
    help="Samples of a batch (of all GPUs); by default the file's batches, of logs 65,536, or less "
    "where there are not eight.",
)  # fmt: skip
@click.option(
    "--shuffle", is_flag=True, help="Batches have any samples of the log, as where training "
    "shuffles; else samples one after the other.",
)  # fmt: skip
@click.option(
    "--tables", type=ListOf(parse_name), default=(), metavar="a,b",
    help="Columns that are tables, and no others.",
)  # fmt: skip
@click.option(
    "--exclude", type=ListOf(parse_name), default=(), metavar="a,b", help="Columns to leave out."
)
@click.option(
    "--as", "kinds", type=Pairs(_kind), multiple=True, metavar="a=KIND",
    help=f"What a column is, where the guess is wrong: {', '.join(_KINDS)}; repeatable.",
)  # fmt: skip
@click.option(
    "--rows", type=Pairs(parse_count), multiple=True, metavar="a=1_000_000",
    help="Rows of a table; repeatable.",
)  # fmt: skip
@click.option(
    "--hash", "hashed", type=Pairs(parse_count), multiple=True, metavar="a=2**20",
    help="Hash a column's ids to so many rows before they are counted; repeatable.",
)  # fmt: skip
@click.option(
    "--padding", type=Pairs(_id, nameless=True), multiple=True, metavar="[a=]0",
    help="The id in lists that is no lookup, or that of a column; repeatable.",
)  # fmt: skip
@click.option(
    "--separator", "separators", type=Pairs(_separator, nameless=True), multiple=True,
    metavar="[a=]'|'", help="What separates ids in texts, or in those of a column; repeatable.",
)  # fmt: skip
@click.option(
    "--share", type=Pairs(_names), multiple=True, metavar="t=a,b",
    help="Columns that share a table, and its name; repeatable.",
)  # fmt: skip
@click.option(
    "--delimiter", type=Pairs(_delimiter, nameless=True), metavar="';'",
    help="What separates the columns of texts; by default it is told by their first lines.",
)  # fmt: skip
@click.option(
    "--columns", type=ListOf(parse_name), default=(), metavar="a,b,c",
    help="Names of all columns of texts that have none.",
)  # fmt: skip
@click.option(
    "--law", type=click.Choice(_LAWS), default="histogram", show_default=True,
    help="The form of the distributions that -o writes.",
)  # fmt: skip
@click.option("--wide", is_flag=True, help="Print everything that was counted.")
@html_option
@output_options
def command(
    sources: tuple[str, ...],
    *,
    target: str | None,
    model: str | None,
    embedding_dim: int | None,
    law: str,
    html: str | None,
    output: Output,
    **said: Any,  # noqa: ANN401 - what is said of columns, and --wide
) -> None:
    """Count recorded ids: what tables a log has, their rows, and how batches read them.

    FILEs are logs (Parquet, CSV or TSV with any separator, Feather, ORC, JSON lines; texts also
    compressed by gzip, bzip2 or zstd), folders or globs of them, - for standard input; or .pt, .npz
    and .npy of indices, offsets and lengths (the open DLRM dataset), KeyedJaggedTensors, batches
    with one, named arrays with lengths or offsets beside them.
    """
    from planner.files.disk import check_writable, write_text
    from planner.inspection.inspect import inspect
    from planner.inspection.writing import fragment, load_patched, patched

    _check(sources, target, model, embedding_dim)
    json = "-" if output.json else None
    check_stdout({"`--output`": target, "`--json`": json, "`--html`": html})
    check_page(html, output)
    if target is not None:
        check_writable(target)
    data, known = (None, None) if model is None else load_patched(model)
    progress = CountingLine(output)
    with interruptible(ending=True) as interrupt, progress:

        def watch(done: int, total: int | None) -> bool:
            progress.show(done, total)
            return not interrupt.happened

        found = inspect(*sources, workload=known, asked=_asked(said), watch=watch)
    if target is not None:
        text = (
            fragment(found, law=law, embedding_dim=embedding_dim)
            if data is None
            else patched(data, found, law=law)
        )
        write_text(target, text)
    _show(found, known, embedding_dim, output, wide=said["wide"], to_stderr="-" in {target, html})
    _say(found, target, law, output)
    write_page(html, lambda: _page(found, known, embedding_dim), output)
    if found.interrupted:
        click.get_current_context().exit(interrupt.exit_code)


def _check(
    sources: tuple[str, ...], target: str | None, model: str | None, embedding_dim: int | None
) -> None:
    """Refuse options that do not go together."""
    from costmodel.domain.workload import EmbeddingTable

    for source in sources:
        if target not in {None, "-"} and os.path.realpath(str(target)) == os.path.realpath(source):
            raise click.UsageError(
                f"-o would overwrite what was recorded, `{source}`: give another name"
            )
    if "-" in sources and len(sources) > 1:
        raise click.UsageError("standard input goes without other files")
    if model is not None and embedding_dim is not None:
        raise click.UsageError("--embedding-dim goes without --workload, which has its own")
    if embedding_dim is not None:
        try:
            EmbeddingTable(name="any", num_embeddings=1, embedding_dim=embedding_dim)
        except ValueError as error:
            raise click.UsageError(f"--embedding-dim: {error}") from None


def _asked(said: Mapping[str, Any]) -> "Asked":
    from planner.inspection.asked import Asked
    from planner.inspection.kinds import Kind

    pairs = ("rows", "hashed", "padding", "separators", "share")
    delimiter = said["delimiter"]
    return Asked(
        **{name: dict(said[name]) for name in pairs},
        kinds={name: Kind[kind] for name, kind in said["kinds"]},
        tables=said["tables"],
        exclude=said["exclude"],
        shuffle=said["shuffle"],
        batch_samples=said["batch_samples"],
        delimiter=delimiter and delimiter[1],
        columns=said["columns"],
    )


def _dims(known: "Workload | None", embedding_dim: int | None) -> Callable[[str], int]:
    """Return what tells a table's columns."""
    if known is not None:
        return lambda name: known.table(name).embedding_dim
    return lambda _: embedding_dim or DIMENSION


def _show(
    found: "Inspection",
    known: "Workload | None",
    embedding_dim: int | None,
    output: Output,
    *,
    wide: bool,
    to_stderr: bool,
) -> None:
    """Print the tables; to stderr if a file goes to stdout."""
    from planner.inspection.inspection_text import inspection_data, inspection_text, wide_text

    dims = _dims(known, embedding_dim)
    if output.json:
        output.data(inspection_data(found, dims))
    elif not to_stderr or not output.quiet:
        file = sys.stderr if to_stderr else None
        output.lines(lambda width: inspection_text(found, width, dims), file)
        if wide:
            output.lines(lambda _: wide_text(found), file)


def _say(found: "Inspection", target: str | None, law: str, output: Output) -> None:
    from planner.inspection.remarks import remarks

    if output.json:
        return
    for remark in remarks(found):
        output.remark(remark)
    untold = [table.name for table in found.tables if table.zipf is None]
    if target is not None and law == "zipf" and untold:
        names = ", ".join(f"`{name}`" for name in untold)
        output.remark(f"no Zipf exponent is told by the ids of {names}: histograms are written")
    if target not in {None, "-"}:
        output.remark(f"Wrote {target}")


def _page(found: "Inspection", known: "Workload | None", embedding_dim: int | None) -> str:
    from planner.inspection.inspection_page import inspection_page

    return inspection_page(found, _dims(known, embedding_dim))
