"""``planner sweep``."""

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from planner.cli.pages import check_page, html_option, write_page
from planner.cli.shared_options import (
    SEED,
    TIME,
    factory_option,
    headroom_option,
    model_options,
    output_options,
    parse_group,
    plan_limit,
    refuse_averaging,
    sync_interval_option,
    told_of_model,
    workload_source,
)
from planner.cli.values import (
    FILE,
    FOLDER,
    HARDWARE,
    SHARDER,
    WRITTEN,
    ListOf,
    Parsed,
    parse_name,
    refuse_overwriting,
)
from planner.environment.interrupts import interruptible
from planner.environment.settings import DEFAULT, parse_count, parse_multiple, resolve
from planner.show.output import Output, ProgressLine

if TYPE_CHECKING:
    from costmodel.domain.workload import Workload
    from planner.sweeping.sweep_points import Sweep, SweepPoint


MOST_JOBS = 256
NO_PLAN = 4


def parse_rate(text: str) -> float:
    """Return a rate from ``5e6``, ``500k`` or ``5M``: here k is a thousand."""
    compact = text.strip().lower()
    factor = {"k": 1e3, "m": 1e6, "g": 1e9}.get(compact[-1:], 1.0)
    try:
        number = float(compact[:-1] if factor > 1 else compact) * factor
    except ValueError:
        raise ValueError(f"`{text}` is not a rate; write `5M` or `5e6`") from None
    if not 0 < number < float("inf"):
        raise ValueError(f"a rate must be above 0, got `{text}`")
    return number


def _price(text: str) -> tuple[str, float]:
    """Return the machine and the price that `NAME=PRICE` says."""
    name, equals, price = text.rpartition("=")
    try:
        if equals and name:
            return name, float(price)
    except ValueError:
        pass
    raise ValueError(f"`{text}` is not a price; write `h100-sxm=2.5`")


def _sku(text: str) -> tuple[str, str]:
    """Return the SKU and the profile that `NAME=PROFILE` says."""
    name, _, profile = text.partition("=")
    if name and profile:
        return name, profile
    raise ValueError(f"`{text}` is not a SKU and its profile; write `GTT=h100-sxm`")


@click.command("sweep")
@click.argument("workload", metavar="FILE", type=FILE, required=False)
@factory_option("Instead of FILE: a function that returns a TorchRec model (meta device will do).")
@model_options
@click.option(
    "--gpus", type=ListOf(parse_multiple), required=True, metavar="8,16,32",
    help="GPUs in all, on as few nodes as hold them.",
)  # fmt: skip
@click.option(
    "--hardware", type=ListOf(parse_name, HARDWARE), metavar="NAME|FILE,...",
    help="Hardware profiles; `planner profiles` lists them.",
)  # fmt: skip
@click.option(
    "--sku", "skus", type=ListOf(_sku), multiple=True, metavar="NAME=PROFILE",
    help="A machine by a name of your own, and its hardware profile; repeatable. Points and prices "
    "go by that name.",
)  # fmt: skip
@click.option(
    "--local-batch", "local_batches", type=ListOf(parse_multiple), default=(), metavar="2k,4k",
    help="Samples per GPU, k is 1,024 [default: as in FILE].",
)  # fmt: skip
@click.option(
    "--global-batch", "whole_batches", type=ListOf(parse_multiple), default=(), metavar="64k,128k",
    help="Samples of all GPUs together, instead: k is 1,024.",
)  # fmt: skip
@click.option(
    "--replica-group", "group_sizes", type=ListOf(parse_group), default=(), metavar="auto|8,64",
    help="GPUs of groups that each hold all tables (TorchRec's DMPCollection), as many as are best "
    "with auto [default: one group of all].",
)  # fmt: skip
@sync_interval_option
@click.option(
    "--price", "prices", type=ListOf(_price), multiple=True, metavar="NAME=2.5",
    help="What an hour of one GPU costs, in any currency; repeatable. For every machine or for "
    "none, and cost is then counted in GPU-hours.",
)  # fmt: skip
@click.option(
    "--samples-per-second", "target", type=Parsed("rate", parse_rate), metavar="5M",
    help="Name the cheapest machine that trains so many samples a second.",
)  # fmt: skip
@click.option(
    "--choose", type=click.Choice(["expected", "safe"]), default="expected",
    help="Whether the cheapest machine trains so many as expected [default], or at the slow end of "
    "the 90% interval, too.",
)  # fmt: skip
@click.option(
    "--sharder", metavar="NAME", type=SHARDER, help="`auto` (all built-in ones) or one of them."
)
@click.option("--seed", type=SEED, help="Of everything random.")
@headroom_option
@click.option("--time-limit", type=TIME, metavar="10s", help="Of the search of one point.")
@click.option(
    "--max-plans", type=Parsed("count", parse_count), metavar="N",
    help="Look at so many plans a point instead: same seed, same plans, however busy the machine.",
)  # fmt: skip
@click.option(
    "--backend", type=click.Choice(["loky", "dask", "ray"]), default="loky",
    help="Where points are planned: in processes of this machine [default], or on a cluster.",
)  # fmt: skip
@click.option(
    "--address", metavar="HOST:PORT", help="Of the running Dask scheduler or Ray cluster.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(min=1, max=MOST_JOBS),
    help="Processes, each planning a point [default: 1]; a cluster has its own number.",
)  # fmt: skip
@click.option(
    "-o", "--output", "directory", metavar="DIR", type=FOLDER,
    help="Keep `sweep.json` and a plan file for every point there; run again, it goes on where it "
    "was interrupted, and plans only what is new.",
)  # fmt: skip
@click.option(
    "--csv",
    "csv_file",
    metavar="FILE",
    type=WRITTEN,
    help="Write a line for every point; - is stdout.",
)
@html_option
@output_options
def command(
    workload: str | None,
    *,
    factory: str | None,
    target: float | None,
    directory: str | None,
    csv_file: str | None,
    html: str | None,
    output: Output,
    **flags: Any,  # noqa: ANN401 - the grid, and how to search
) -> None:
    """Plan a workload FILE for every machine, number of GPUs and batch of a grid."""
    from planner.files.disk import check_writable, make_folder, write_text
    from planner.sweeping.kept import FILE as KEPT

    if directory is not None:
        refuse_overwriting(os.path.join(directory, KEPT), "-o")  # noqa: PTH118 - a name
    if csv_file is not None:
        check_writable(csv_file)
    check_page(html, output, csv=csv_file)
    if directory is not None:
        make_folder(directory)
    source, _ = workload_source(workload, factory, told_of_model(factory, flags, output))
    interrupted, found = _swept(source, directory, flags, output)
    if csv_file is not None:
        write_text(csv_file, found.to_csv())
    safe = flags.pop("choose") == "safe"
    _show(found, target, output, safe=safe, to_stderr="-" in {csv_file, html})
    write_page(html, found.to_html, output)
    if interrupted:
        output.remark(_undone(directory))
        click.get_current_context().exit(interrupted)
    if not found.feasible or (target is not None and found.cheapest(target, safe=safe) is None):
        click.get_current_context().exit(NO_PLAN)


def _swept(
    workload: "str | Workload", directory: str | None, flags: dict[str, Any], output: Output
) -> "tuple[int, Sweep]":
    """Return the code to exit with if it was interrupted, else 0; and the points that are done."""
    from planner.sweeping.sweep import sweep
    from planner.verbs.grouping import Grouping

    sizes, interval = flags["group_sizes"], flags["sync_interval"]
    if not sizes:
        refuse_averaging(sync_interval=interval)
    max_plans, prices = plan_limit(flags), dict(each for some in flags["prices"] for each in some)
    chosen = {name: flags[name] for name in ("sharder", "seed", "time_limit", "headroom")}
    settings = resolve(chosen)
    refuse_overwriting(settings.hardware, settings.origins["hardware"])
    if flags["jobs"] is not None and flags["backend"] != "loky":
        raise click.UsageError("--jobs is of --backend loky: a cluster plans on all its cores")
    skus = dict(each for some in flags["skus"] for each in some)
    hardware = flags["hardware"] or ([] if skus else [settings.hardware])
    if not (flags["hardware"] or skus) and settings.origins["hardware"] == DEFAULT:
        output.remark(f"{settings.hardware} is assumed; set --hardware")
    start = time.monotonic()

    def done(number: int, total: int, point: "SweepPoint") -> None:
        from planner.show.format import duration
        from planner.sweeping.sweep_text import place

        how = "no plan" if point.step_time is None else duration(point.step_time)
        seconds = time.monotonic() - start
        progress.say("")
        output.remark(f"{number} of {total}, {seconds:.0f} s: {place(point)}: {how}")
        progress.say(f"planning {total - number} more")

    with interruptible(ending=True, at_once=True) as interrupt, ProgressLine(output) as progress:
        progress.say("planning the first point")
        found = sweep(
            workload,
            gpus=flags["gpus"],
            hardware={each: each for each in hardware} | skus,
            local_batch_sizes=flags["local_batches"],
            global_batch_sizes=flags["whole_batches"],
            groups=[Grouping(group_size=each, sync_interval=interval or 1) for each in sizes],
            prices=prices,
            sharder=settings.sharder,
            directory=directory,
            done=done,
            seed=settings.seed,
            time_limit=settings.time_limit,
            headroom=settings.headroom,
            max_plans=max_plans,
            jobs=flags["jobs"] or 1,
            backend=flags["backend"],
            address=flags["address"],
        )
    return interrupt.exit_code if interrupt.happened else 0, found


def _undone(directory: str | None) -> str:
    if directory is None:
        return "interrupted: these are the points done until then; with -o DIR they would be kept"
    return f"interrupted: the same command goes on from the points kept in {directory}"


def _show(
    found: "Sweep", target: float | None, output: Output, *, safe: bool, to_stderr: bool
) -> None:
    if output.json:
        data = found.to_dict()
        if target is not None:
            cheapest = found.cheapest(target, safe=safe)
            data["cheapest"] = {
                "samples_per_s": target,
                "key": None if cheapest is None else cheapest.key,
            }
        output.data(data)
        return
    from planner.sweeping.sweep_text import sweep_text

    if not found.points:
        return
    file = sys.stderr if to_stderr else None
    output.lines(lambda width: sweep_text(found, width, target, safe=safe), file)
