"""``planner trace-model``."""

from typing import TYPE_CHECKING

import click

from costmodel.base.limits import MOST_IDS, MOST_SAMPLES
from planner.cli.pages import check_stdout
from planner.cli.shared_options import SAMPLES, output_options, refuse_given
from planner.cli.values import FILE, HARDWARE, WRITTEN
from planner.show.output import Output

if TYPE_CHECKING:
    from costmodel.operators.operator_list import BatchSize, OperatorList, Size

_LONGEST = click.IntRange(min=1, max=int(MOST_IDS))
_ARITHMETIC = ("fp32", "tf32", "fp16", "bf16")
_IDS = click.IntRange(min=0, max=1000 * MOST_SAMPLES)


@click.command("trace-model")
@click.argument("model", metavar="MODULE:FUNCTION|TRACES", type=FILE)
@click.option(
    "-o", "--output", "target", metavar="FILE", type=WRITTEN, help="Write the operators as JSON."
)
@click.option(
    "--batches",
    "batches",
    metavar="MODULE:FUNCTION",
    help="A function that returns a list of batches, as the model's forward takes them (a tuple "
    "is its arguments): one of 16 samples or more, or several of different sizes. Without it they "
    "are made up, where forward takes sparse features, dense numbers and labels.",
)
@click.option(
    "--batch-size",
    type=SAMPLES,
    help="Samples of a rank's batch; of TRACES, those of the traced one [default: 512; of TRACES "
    "the first size of most of what the model is given].",
)
@click.option(
    "--longest", type=_LONGEST, help="Ids of the longest sequence, where there are sequences."
)
@click.option("--ids", type=_IDS, help="Ids of all sequences in a rank's batch.")
@click.option(
    "--hardware", metavar="NAME|FILE", type=HARDWARE, help="Say what it takes on this machine."
)
@click.option(
    "--precision",
    type=click.Choice(_ARITHMETIC),
    default=_ARITHMETIC[0],
    show_default=True,
    help="Arithmetic of products of FP32, with --hardware.",
)
@output_options
def command(
    model: str,
    *,
    target: str | None,
    batches: str | None,
    hardware: str | None,
    precision: str,
    output: Output,
    **asked: int | None,
) -> None:
    """Read the dense part of a model: its operators, FLOP and bytes.

    Of the model that a function returns, for any batch: it runs a few times on the CPU, with small
    batches and without its tables, and stays as it is; the meta device will do. Needs torchrec.

    Or of one real training step, of which TRACES is a folder, an archive or a file of
    `torch.profiler.ExecutionTraceObserver`.
    """
    from costmodel.domain.workload import DataType
    from planner.files.dense import save_operators
    from planner.files.disk import check_writable
    from planner.files.profiles import load_profile
    from planner.operators.operators_text import OnMachine, operators_summary, operators_text

    check_stdout({"`--output`": target, "`--json`": "-" if output.json else None})
    if target is not None:
        check_writable(target)
    operators, batch = _read(model, batches, **asked)
    machine = None if hardware is None else OnMachine(load_profile(hardware), DataType(precision))
    if output.json:
        output.data(operators_summary(operators, batch, machine))
    elif target != "-":
        output.lines(lambda width: operators_text(operators, batch, machine, width))
    if target is not None:
        save_operators(operators, target)
    if target not in {None, "-"}:
        output.remark(f"\nWrote {target}")


def _read(
    model: str, batches: str | None, **asked: int | None
) -> "tuple[OperatorList[Size], BatchSize]":
    """Return the list of a model, or of traces, and the batch that is asked for."""
    from planner.traces.trace_files import is_trace_path

    if not is_trace_path(model):
        from planner.torchrec import read_factory_operators

        operators = read_factory_operators(model, batches)
        return operators, _batch(operators, **asked)
    from planner.traces.execution.dense_list import traced_operators

    samples = asked.pop("batch_size")
    refuse_given("a model", "a trace is of one batch", batches=batches, **asked)
    operators = traced_operators(model, samples)
    return operators, operators.recorded


def _batch(
    operators: "OperatorList[Size]",
    batch_size: int | None,
    longest: int | None,
    ids: int | None,
) -> "BatchSize":
    """Return the batch that is asked for; what is not, like that which the model ran with."""
    from torchrec.distributed.planner.constants import BATCH_SIZE

    from costmodel.operators.operator_list import BatchSize, SequenceSize

    recorded, samples = operators.recorded, batch_size or BATCH_SIZE
    share = samples / max(1, recorded.samples)
    if ids is not None:
        share = ids / max(1, sum(each.ids for each in recorded.sequences))
    return BatchSize(
        samples,
        tuple(
            SequenceSize(longest or each.longest, round(share * each.ids))
            for each in recorded.sequences
        ),
    )
