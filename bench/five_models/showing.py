"""Shows that the dense parts read of ``examples/models`` are right, and what they change.

python -m bench.five_models [NAME ...] [--write]

For each: operators and bytes of its list beside a profiled step on a CPU (``steps``), plans chosen
with the list and with linear layers alone (``choices``), and losses of three steps on two ranks as
IterationTimePlanner plans them beside those of the unsharded model (``training``).
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any

from bench.dense_reading.reading import EXAMPLES
from bench.documented import ROOT
from bench.five_models.choices import choices
from bench.five_models.steps import beside_the_profiler
from bench.five_models.training import trained_on_ranks
from bench.kept import parser_of, row_by_row

RESULTS = ROOT / "bench" / "results" / "five_models.json"


def main() -> None:
    """Make and print rows, and with --write keep them."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of examples/models")
    args = parser.parse_args()
    row_by_row(
        RESULTS,
        args.names or EXAMPLES,
        made,
        lambda *each: print(*lines(*each), sep="\n"),
        keep=args.write,
    )


def made(name: str) -> dict[str, Any]:
    """Return all that is shown of a model."""
    spec = f"examples.models.{name}"
    trained = trained_on_ranks([name])[name]
    model = import_module(spec).make_model()
    return {
        "torch": version("torch"),
        "torchrec": version("torchrec"),
        "step": beside_the_profiler(model),
        "choices": choices(f"{spec}:make_model", model),
        "trained": trained,
    }


def lines(name: str, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is said of a model."""
    step, trained = row["step"], row["trained"]
    peak, at_loss = (read / traced for read, traced in (step["peak"], step["at_loss"]))
    yield (
        f"{name}: {step['operators']} operators, profiled otherwise {step['differences']}; bytes "
        f"read over allocated {peak:.3f} at most, {at_loss:.3f} at the loss; losses at most "
        f"{difference(trained):.1g} from those of the unsharded model"
    )
    for machine, by_size in row["choices"]["machines"].items():
        for size, each in by_size.items():
            more = ""
            if "plans" in each:
                own, other = each["plans"]
                gain = f"{own} gains {each['gain_percent']}% over {other}"
                more = f", whose plan takes {each['layers_plan']} ms: {gain}"
            own, other = _ms(each["operators"]), _ms(each["layers"])
            yield f"  {machine}, {size}: {own}, by layers {other}{more}"


def _ms(step: float | str) -> str:
    return step if isinstance(step, str) else f"{step} ms"


def difference(trained: Mapping[str, Any]) -> float:
    """Return how far losses are from those of the unsharded model, relative to these."""
    pairs = zip(trained["losses"], trained["unsharded"], strict=True)
    found: float = max(abs(loss / alone - 1) for loss, alone in pairs)
    return found
