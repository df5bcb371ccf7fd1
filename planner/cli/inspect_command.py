"""``planner inspect``."""

import os
import sys
from typing import TYPE_CHECKING

import click

from planner.cli.pages import check_stdout
from planner.cli.shared_options import COUNT, output_options
from planner.cli.values import FILE
from planner.show.output import Output

if TYPE_CHECKING:
    from planner.inspection.inspect import Inspection


@click.command("inspect")
@click.argument("source", metavar="FILE", type=FILE)
@click.option(
    "-o", "--output", "target", metavar="FILE", type=FILE, help="Write YAML of the tables."
)
@click.option(
    "--workload",
    metavar="FILE",
    type=FILE,
    help="Whose tables these are: -o then writes this workload with what was counted.",
)
@click.option(
    "--batch-size",
    type=COUNT,
    metavar="N",
    help="Samples of a batch (of all GPUs); by default the file's batches, or all its samples.",
)
@click.option(
    "--as",
    "law",
    type=click.Choice(["histogram", "zipf", "unique_fraction"]),
    default="histogram",
    show_default=True,
    help="The form of the distributions that -o writes.",
)
@click.option(
    "--embedding-dim", type=COUNT, help="Without --workload: makes what -o writes a workload."
)
@output_options
def command(
    source: str,
    *,
    target: str | None,
    workload: str | None,
    batch_size: int | None,
    law: str,
    embedding_dim: int | None,
    output: Output,
) -> None:
    """Count recorded ids in FILE: .pt, .npz, .npy or .parquet.

    Understood are indices, offsets and lengths (the open DLRM dataset), KeyedJaggedTensors, batches
    with one, named arrays with lengths or offsets beside them, and columns of lists.
    """
    from costmodel.domain.workload import EmbeddingTable
    from planner.files.disk import check_writable, write_text
    from planner.inspection.inspect import fragment, inspect, load_patched, patched

    if (
        target is not None
        and target != "-"
        and os.path.realpath(target) == os.path.realpath(source)
    ):
        raise click.UsageError(
            f"-o would overwrite what was recorded, `{source}`: give another name"
        )
    if workload is not None and embedding_dim is not None:
        raise click.UsageError("--embedding-dim goes without --workload, which has its own")
    if embedding_dim is not None:
        try:
            EmbeddingTable(name="any", num_embeddings=1, embedding_dim=embedding_dim)
        except ValueError as error:
            raise click.UsageError(f"--embedding-dim: {error}") from None
    check_stdout({"`--output`": target, "`--json`": "-" if output.json else None})
    if target is not None:
        check_writable(target)
    data, known = (None, None) if workload is None else load_patched(workload)
    found = inspect(source, workload=known, batch_samples=batch_size)
    if target is not None:
        text = (
            fragment(found, law=law, embedding_dim=embedding_dim)
            if data is None
            else patched(data, found, law=law)
        )
        write_text(target, text)
    _show(found, target, law, output)


def _show(found: "Inspection", target: str | None, law: str, output: Output) -> None:
    """Print the statistics; to stderr if the YAML itself goes to stdout."""
    from planner.inspection.inspect import remarks
    from planner.inspection.inspection_text import inspection_data, inspection_text

    if output.json:
        output.data(inspection_data(found))
        return
    if target != "-" or not output.quiet:
        file = sys.stderr if target == "-" else None
        output.lines(lambda width: inspection_text(found, width), file)
    for remark in remarks(found):
        output.remark(remark)
    if target is not None and law == "zipf":
        _say_untold(found, output)
    if target not in {None, "-"}:
        output.remark(f"Wrote {target}")


def _say_untold(found: "Inspection", output: Output) -> None:
    untold = [table.name for table in found.tables if table.zipf is None]
    if untold:
        names = ", ".join(f"`{name}`" for name in untold)
        output.remark(f"no Zipf exponent is told by the ids of {names}: histograms are written")
