"""Options that several commands share, and the types of their values."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from costmodel.base.limits import MOST_RANKS, MOST_SAMPLES
from costmodel.base.units import GB, GIB, KB, KIB, MB, MIB
from planner.cli.values import HARDWARE, Parsed, refuse_overwriting
from planner.environment.settings import parse_count, parse_headroom, parse_share, parse_time
from planner.show.output import Output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from costmodel.domain.workload import Workload
    from planner.environment.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

AUTO = "auto"
_MOST_BYTES = 2.0**60
_SIZES = {
    "": 1.0,
    "b": 1.0,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "kb": KB,
    "mb": MB,
    "gb": GB,
}


def parse_size(text: str) -> float:
    """Return bytes from ``64MiB``, ``64MB``, ``1e6`` or ``4096``."""
    compact = text.strip().replace(" ", "").replace("_", "")
    number = compact.rstrip("kKmMgGiIbB")
    unit = compact[len(number) :].lower()
    try:
        num_bytes = float(number) * _SIZES[unit]
    except (ValueError, KeyError):
        raise ValueError(f"`{text}` is not a size; write `64MiB`, `64MB` or bytes") from None
    if not 0 <= num_bytes <= _MOST_BYTES:
        raise ValueError(f"a size must be 0 or more, and at most 1 EiB, got `{text}`")
    return num_bytes


def parse_group(text: str) -> int | str:
    """Return the number of GPUs of a group, or ``auto``."""
    try:
        return AUTO if text.strip() == AUTO else parse_count(text)
    except ValueError as error:
        raise ValueError(f"{error}; write a number or `{AUTO}`") from None


SHARE = Parsed("share", parse_share)
SIZE = Parsed("size", parse_size)
COUNT = Parsed("count", parse_count)
TIME = Parsed("time", parse_time)
REPLICA_GROUP = Parsed("group", parse_group)

headroom_option = click.option(
    "--headroom",
    type=Parsed("share", parse_headroom),
    metavar="10%",
    help="Share of the memory for tables that every rank keeps free, unless nothing else fits or a "
    "fuller plan is surely faster [default: 10%].",
)

sync_interval_option = click.option(
    "--sync-interval",
    type=COUNT,
    metavar="K",
    help="With --replica-group: steps from one averaging of the groups' replicas to the next "
    "[default: 1].",
)

GPUS = click.IntRange(min=1, max=MOST_RANKS)
SAMPLES = click.IntRange(min=1, max=MOST_SAMPLES)
SEED = click.IntRange(min=-(2**63), max=2**63 - 1)

gpus_option = click.option("--gpus", type=GPUS, required=True, help="GPUs in all, on all nodes.")
nodes_option = click.option(
    "--nodes",
    type=GPUS,
    help="Nodes they are on; by default as few as hold them.",
)


def factory_option(meaning: str) -> Callable[[Command], Command]:
    """Return the option that names a function which returns a TorchRec model."""
    return click.option("--from-torchrec", "factory", metavar="MODULE:FUNCTION", help=meaning)


hardware_option = click.option(
    "--hardware",
    metavar="NAME|FILE",
    type=HARDWARE,
    help="Hardware profile; `planner profiles` lists them.",
)


def refuse_averaging(**options: object) -> None:
    """Refuse options of how groups' replicas are averaged where no groups were asked for."""
    refuse_given("--replica-group", "one group has no replicas", **options)


def refuse_given(where: str, why: str, **options: object) -> None:
    """Refuse options that were given and would be ignored: they go with something else.

    Raises
    ------
    click.UsageError
        Some were given: not None, no empty tuple, no flag that is off.

    """
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in options.items()
        if value is not None and value is not False and value != ()
    ]
    if given:
        verb = "goes" if len(given) == 1 else "go"
        raise click.UsageError(f"{', '.join(given)} {verb} with {where}: {why}")


def output_options(command: Command) -> Command:
    """Add ``--json``, ``--quiet``, ``--no-color`` to a command, which gets them as ``output``."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in SI units.")
    @click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr but errors.")
    @click.option("--no-color", is_flag=True, help="As the environment variable NO_COLOR.")
    @wraps(command)
    def wrapped(
        *args: Any,  # noqa: ANN401 - passed through
        as_json: bool,
        quiet: bool,
        no_color: bool,
        **kwargs: Any,  # noqa: ANN401 - passed through
    ) -> Any:  # noqa: ANN401 - passed through
        output = Output(json=as_json, quiet=quiet, color=not no_color)
        return command(*args, output=output, **kwargs)

    return wrapped  # type: ignore[return-value]


def search_options(command: Command) -> Command:
    """Add the options of a search to a command, from the hardware to the seed."""
    options = (
        click.option("--gpus", type=GPUS, help="GPUs in all, on all nodes; needed with FILE."),
        nodes_option,
        hardware_option,
        click.option("--seed", type=SEED, help="Of everything random."),
        click.option("--time-limit", type=TIME, metavar="10s", help="Of the whole command."),
        click.option(
            "--max-plans",
            type=COUNT,
            metavar="N",
            help="Look at so many plans instead: same seed, same plan, however busy the machine.",
        ),
        headroom_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def plan_limit(flags: dict[str, Any]) -> int | None:
    """Remove ``--max-plans`` from the flags of a search, and return it; None: not given."""
    max_plans: int | None = flags.pop("max_plans")
    if max_plans is not None and flags["time_limit"] is not None:
        raise click.UsageError("--max-plans goes without --time-limit: a clock is never the same")
    return max_plans


def profile_and_nodes(settings: "Settings", gpus: int, nodes: int | None) -> int:
    """Return the number of nodes; raise if GPUs and nodes do not go together."""
    from planner.files.profiles import load_profile
    from planner.verbs.topologies import node_count

    refuse_overwriting(settings.hardware, settings.origins["hardware"])
    try:
        return node_count(gpus, nodes, load_profile(settings.hardware))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--gpus'") from None


class ModelTold(TypedDict):
    """What a TorchRec model does not say, as arguments of ``read_factory``."""

    local_batch_size: int | None
    dense_optimizer: str | None
    precision: str | None
    batches: str | None
    say: Callable[[str], None]


def model_options(command: Command) -> Command:
    """Add the options for what a TorchRec model does not say; ``told_of_model`` reads them."""
    batch = click.option(
        "--batch-size",
        type=SAMPLES,
        help="With --from-torchrec: samples per GPU [default: 512].",
    )
    optimizer = click.option(
        "--dense-optimizer",
        metavar="NAME",
        help="With --from-torchrec: what updates the dense part and replicated tables: sgd, "
        "adagrad or adam [default: adagrad, which is between the others].",
    )
    precision = click.option(
        "--precision",
        metavar="TYPE",
        help="With --from-torchrec: arithmetic of the dense part: fp32, tf32, fp16 or bf16, also "
        "of autocast [default: as torch is set].",
    )
    batches = click.option(
        "--batches",
        metavar="MODULE:FUNCTION",
        help="With --from-torchrec: a function that returns a list of batches, as the model's "
        "forward takes them: it is run with some of their samples, and ids are counted in them.",
    )
    return batch(optimizer(precision(batches(command))))


def told_of_model(factory: str | None, flags: dict[str, Any], output: Output) -> ModelTold:
    """Take what is told of a model out of the values of a command's options.

    What is to be said of the reading goes to the command's output.

    Raises
    ------
    click.UsageError
        There is no model.

    """
    names = ("batch_size", "dense_optimizer", "precision", "batches")
    told = {name: flags.pop(name) for name in names}
    for name, value in told.items():
        if value is not None and factory is None:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} goes with --from-torchrec")
    return {
        "local_batch_size": told["batch_size"],
        "dense_optimizer": told["dense_optimizer"],
        "precision": told["precision"],
        "batches": told["batches"],
        "say": output.remark,
    }


def workload_source(
    path: str | None, factory: str | None, told: ModelTold
) -> "tuple[str | Workload, Mapping[str, Any] | None]":
    """Return the workload's path, or the workload of a TorchRec model and its tables' places."""
    if path is None and factory is None:
        raise click.MissingParameter(param_hint="'FILE'", param_type="argument")
    if factory is None:
        return path or "", None
    if path is not None:
        raise click.UsageError("give either FILE or --from-torchrec")
    from planner.torchrec import read_factory

    return read_factory(factory, **told)
