"""``planner predict``."""

from typing import TYPE_CHECKING

import click

from planner.cli.shared_options import output_options
from planner.cli.traces import check_trace, trace_options, write_trace
from planner.cli.values import FILE, HARDWARE
from planner.show.output import Output, ProgressLine

if TYPE_CHECKING:
    from collections.abc import Iterable


@click.command("predict")
@click.argument("traces", metavar="TRACES", type=FILE)
@click.option(
    "--hardware",
    metavar="NAME|FILE",
    type=HARDWARE,
    required=True,
    help="Hardware profile, of GPUs or of a CPU (`planner profiles` lists them).",
)
@click.option(
    "--workload",
    metavar="FILE",
    type=FILE,
    help="Workload file of the tables that TRACES look up by FBGEMM: how often their ids repeat.",
)
@trace_options
@output_options
def command(
    traces: str,
    *,
    hardware: str,
    workload: str | None,
    trace: str | None,
    ranks: "Iterable[int] | str | None",
    output: Output,
) -> None:
    """Predict a training step of any model from the execution TRACES of all ranks.

    TRACES is a folder, an archive or a file of `torch.profiler.ExecutionTraceObserver`, one per
    rank. They hold operators and shapes, no times: kernels are timed by models of the hardware.
    Profiler traces beside them are only compared with.
    """
    from planner.show.ranks import shown_ranks
    from planner.traces.predict.predict_text import predict_data, predict_text
    from planner.traces.predict.prediction import predict

    check_trace(trace, ranks=ranks)
    with ProgressLine(output) as progress:
        progress.say(f"reading {traces}, and timing its operators")
        prediction = predict(traces, hardware, workload)
        shown = shown_ranks(prediction.timeline, ranks)
    if output.json:
        output.data(predict_data(prediction))
    else:
        output.lines(lambda width: predict_text(prediction, width))
    write_trace(trace, prediction.timeline, shown, output)
