"""``planner predict``."""

import click

from planner.cli.options import output_options
from planner.cli.values import FILE, HARDWARE, WRITTEN
from planner.show.output import Output


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
    "--trace", metavar="FILE|DIR", type=WRITTEN, help="Write a Chrome trace; in a folder, per rank."
)
@output_options
def command(traces: str, *, hardware: str, trace: str | None, output: Output) -> None:
    """Predict a training step of any model from the execution TRACES of all ranks.

    TRACES is a folder, an archive or a file of `torch.profiler.ExecutionTraceObserver`, one per
    rank. They hold operators and shapes, no times: kernels are timed by models of the hardware.
    Profiler traces beside them are only compared with.
    """
    from planner.traces.predict.predict_data import predict_data
    from planner.traces.predict.predict_text import predict_text
    from planner.traces.predict.prediction import predict

    _check_output(trace)
    prediction = predict(traces, hardware)
    if output.json:
        output.data(predict_data(prediction))
    else:
        output.lines(lambda width: predict_text(prediction, width))
    if trace is not None:
        from planner.traces.trace_folder import write_traces

        for path in write_traces(prediction.timeline, trace):
            output.remark(f"Wrote {path}")


def _check_output(trace: str | None) -> None:
    from planner.traces.trace_folder import check_traces_writable

    if trace == "-":
        raise click.BadParameter("it needs a file", param_hint="'--trace'")
    if trace is not None:
        check_traces_writable(trace)
