"""``planner predict``."""

import click

from planner.cli.shared_options import output_options
from planner.cli.traces import check_trace, trace_option, write_trace
from planner.cli.values import FILE, HARDWARE
from planner.show.output import Output, ProgressLine


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
@trace_option
@output_options
def command(
    traces: str, *, hardware: str, workload: str | None, trace: str | None, output: Output
) -> None:
    """Predict a training step of any model from the execution TRACES of all ranks.

    TRACES is a folder, an archive or a file of `torch.profiler.ExecutionTraceObserver`, one per
    rank. They hold operators and shapes, no times: kernels are timed by models of the hardware.
    Profiler traces beside them are only compared with.
    """
    from planner.traces.predict.predict_text import predict_data, predict_text
    from planner.traces.predict.prediction import predict

    check_trace(trace)
    with ProgressLine(output) as progress:
        progress.say(f"reading {traces}, and timing its operators")
        prediction = predict(traces, hardware, workload)
    if output.json:
        output.data(predict_data(prediction))
    else:
        output.lines(lambda width: predict_text(prediction, width))
    write_trace(trace, prediction.timeline, output)
