"""``planner estimate``: one kernel model, asked directly."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from costmodel.base.limits import MOST_TABLES
from planner.cli.shared_options import (
    COUNT,
    SIZE,
    gpus_option,
    hardware_option,
    nodes_option,
    output_options,
)
from planner.cli.values import WEIGHTS
from planner.show.output import Output

if TYPE_CHECKING:
    from costmodel.domain.hardware import Estimate, HardwareProfile

_COLLECTIVES = ("all_to_all", "all_reduce", "reduce_scatter", "all_gather")
_OPTIMIZERS = click.Choice(["sgd", "rowwise_adagrad", "adagrad", "adam", "partial_rowwise_adam"])


@click.group("estimate")
def command() -> None:
    """Ask one kernel model how long one kernel takes."""


def _collective(name: str) -> click.Command:
    @click.command(name, help=f"Time one {name}.")
    @click.option(
        "--bytes",
        "num_bytes",
        type=SIZE,
        required=True,
        help="Send buffer of a rank (64MiB, 64MB, 1e6); of all_gather, the gathered output.",
    )
    @gpus_option
    @nodes_option
    @hardware_option
    @output_options
    def collective(
        *, num_bytes: float, gpus: int, nodes: int | None, hardware: str | None, output: Output
    ) -> None:
        from costmodel.domain.hardware import CollectiveOp
        from costmodel.kernels.collectives import RankGroup, collective_estimate
        from planner.verbs.topologies import node_count

        profile = _profile(hardware)
        try:
            per_node = gpus // node_count(gpus, nodes, profile)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--gpus'") from None
        group = RankGroup(num_ranks=gpus, ranks_per_node=per_node)
        estimate = collective_estimate(CollectiveOp(name), num_bytes, group, profile)
        asked = {"op": name, "num_bytes": num_bytes, "num_ranks": gpus, "ranks_per_node": per_node}
        _show(asked, profile, estimate, output)

    return collective


for _name in _COLLECTIVES:
    command.add_command(_collective(_name))


@command.command("gemm")
@click.option("--m", type=COUNT, required=True, help="Rows of the result.")
@click.option("--n", type=COUNT, required=True, help="Columns of the result.")
@click.option("--k", type=COUNT, required=True, help="Length of the sums.")
@click.option("--dtype", type=click.Choice(["tf32", *WEIGHTS]), default="fp32", show_default=True)
@hardware_option
@output_options
def gemm(*, m: int, n: int, k: int, dtype: str, hardware: str | None, output: Output) -> None:
    """Time one matrix product, (m, k) times (k, n)."""
    from costmodel.domain.workload import DataType
    from costmodel.kernels.gemm import gemm_estimate

    profile = _profile(hardware)
    if dtype not in profile.gpu.gemm:
        known = ", ".join(profile.gpu.gemm)
        message = f"{profile.name} has no numbers for `{dtype}`, only for {known}"
        raise click.BadParameter(message, param_hint="'--dtype'")
    estimate = gemm_estimate(m, n, k, DataType(dtype), profile.gpu)
    _show({"op": "gemm", "m": m, "n": n, "k": k, "dtype": dtype}, profile, estimate, output)


@command.command("embedding")
@click.option("--rows", type=COUNT, required=True, help="Rows of each table.")
@click.option("--dim", type=COUNT, required=True, help="Columns of each table.")
@click.option("--tables", type=click.IntRange(1, MOST_TABLES), default=1, show_default=True)
@click.option("--pooling-factor", type=float, default=1.0, show_default=True)
@click.option("--batch", type=COUNT, required=True, help="Samples that the kernel looks up.")
@click.option("--dtype", type=click.Choice(WEIGHTS), default="fp32", show_default=True)
@click.option("--optimizer", type=_OPTIMIZERS, default="rowwise_adagrad", show_default=True)
@click.option("--zipf", type=float, default=1.05, show_default=True, help="Exponent; 0 is uniform.")
@hardware_option
@output_options
def embedding(*, hardware: str | None, output: Output, **asked: Any) -> None:  # noqa: ANN401
    """Time one table-batched lookup, and its backward with the optimizer."""
    from costmodel.domain.workload import Optimizer
    from costmodel.kernels.embedding import embedding_estimate

    profile = _profile(hardware)
    tables = _checked(lambda: _tables(**asked))
    forward, backward = embedding_estimate(
        tables,
        num_samples=asked["batch"],
        optimizer=Optimizer(asked["optimizer"]),
        hardware=profile,
    )
    if output.json:
        output.data({
            "op": "embedding",
            **asked,
            "hardware": profile.name,
            "forward_s": forward.seconds,
            "backward_s": backward.seconds,
            "bound_by": forward.bound_by.on(profile.device),
            "backward_bound_by": backward.bound_by.on(profile.device),
            "source": forward.source.value,
            "extrapolated": forward.extrapolated or backward.extrapolated,
        })
    else:
        for name, estimate in (("forward ", forward), ("backward", backward)):
            click.echo(f"{name}  {_text(estimate, profile)}")


def _tables(**asked: Any) -> tuple[Any, ...]:  # noqa: ANN401 - the command's options
    from costmodel.domain.workload import DataType, EmbeddingTable
    from costmodel.inputs.distribution import Zipf

    return tuple(
        EmbeddingTable(
            name=f"table_{index}",
            num_embeddings=asked["rows"],
            embedding_dim=asked["dim"],
            pooling_factor=asked["pooling_factor"],
            data_type=DataType(asked["dtype"]),
            inputs=Zipf(exponent=asked["zipf"]),
        )
        for index in range(asked["tables"])
    )


def _checked(make: Callable[[], Any]) -> Any:  # noqa: ANN401 - what `make` makes
    try:
        return make()
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _profile(hardware: str | None) -> "HardwareProfile":
    from planner.environment.settings import resolve
    from planner.files.profiles import load_profile

    return load_profile(resolve({"hardware": hardware}).hardware)


def _show(
    asked: dict[str, Any], profile: "HardwareProfile", estimate: "Estimate", output: Output
) -> None:
    if output.json:
        output.data({
            **asked,
            "hardware": profile.name,
            "time_s": estimate.seconds,
            "bound_by": estimate.bound_by.on(profile.device),
            "source": estimate.source.value,
            "extrapolated": estimate.extrapolated,
        })
    else:
        click.echo(_text(estimate, profile))


def _text(estimate: "Estimate", profile: "HardwareProfile") -> str:
    from planner.show.format import duration

    beyond = ", outside the measured range" if estimate.extrapolated else ""
    return (
        f"{duration(estimate.seconds):>8}   limited by {estimate.bound_by.on(profile.device)}, "
        f"{estimate.source} ({profile.name}{beyond})"
    )
