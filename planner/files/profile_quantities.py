"""The quantities of a hardware profile file: units, and the bounds of every number."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from costmodel.base.limits import MOST_COUNTED, MOST_ERROR
from costmodel.base.units import US
from costmodel.domain.hardware import Source
from costmodel.domain.time_correction import TimeCorrection
from costmodel.domain.workload import DataType, Optimizer
from costmodel.kernels.gemm import STAND_IN
from planner.files.profile_units import NUMBER, RATE, SIZE, TIME, parse_quantity
from planner.files.validator import OWN_MESSAGE

_T = TypeVar("_T")


LEAST, MOST = 1e-15, 1e21
"""Between them lies every number of a machine that is not 0, in SI units, from a part of a cycle to
all FLOP of all machines. Beyond them quotients and products overflow."""


def si(units: Mapping[str, float], *, above_zero: bool = False, most: float = MOST) -> Any:  # noqa: ANN401 - what Annotated takes
    """Return a validator to SI numbers of at least 0."""

    def number(value: object) -> float:
        try:
            found = parse_quantity(value, units)
        except ValueError as error:
            raise refusal(str(error)) from None
        if not 0 <= found <= most or (above_zero and found == 0):
            least = "above 0" if above_zero else "at least 0"
            wanted = f"{least} and at most {most:g}" if most < MOST or found > most else least
            raise refusal(f"must be {wanted}, got `{value}`")
        if 0 < found < LEAST:
            raise refusal(f"must be at least {LEAST:g} in SI units if it is not 0, got `{value}`")
        return found

    bounds: JsonDict = {"exclusiveMinimum" if above_zero else "minimum": 0, "maximum": most}
    return BeforeValidator(number, json_schema_input_type=_written(units, bounds))


def _written(units: Mapping[str, float], bounds: JsonDict) -> Any:  # noqa: ANN401 - a type
    """Return the type of a quantity in a file: a text with a unit, or a number if ``""`` is one."""
    pattern = rf"^[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)? *({'|'.join(units)})$"
    if "" in units:  # YAML takes `5e9` for a text
        return (
            Annotated[float, Field(json_schema_extra=bounds)]
            | Annotated[str, Field(pattern=pattern)]
        )
    return Annotated[str, Field(pattern=pattern)]


def refusal(message: str) -> PydanticCustomError:
    """Return an error that a file's reader is shown as it is."""
    return PydanticCustomError(OWN_MESSAGE, "{message}", {"message": message})


def _not_blank(text: str) -> str:
    if not text.strip():
        raise refusal("needs a text")
    return text


def of_all_types(entries: dict[DataType, _T]) -> dict[DataType, _T]:
    """Return entries if some of them can stand in for missing data types; else raise."""
    if entries.keys().isdisjoint(STAND_IN):
        raise refusal(f"needs one of {', '.join(STAND_IN)}, which stand in for what is missing")
    return entries


def _range(pair: list[float]) -> tuple[float, float]:
    if len(pair) != 2 or pair[0] > pair[1]:
        raise refusal("needs the lowest and the highest value")
    return pair[0], pair[1]


def _correction(pairs: list[tuple[float, float]]) -> TimeCorrection:
    try:
        return TimeCorrection(tuple((before * US, after * US) for before, after in pairs))
    except ValueError:
        raise refusal("needs pairs of microseconds that grow, the model's and corrected") from None


def of_length(length: int) -> Any:  # noqa: ANN401 - what Annotated takes
    """Return a validator of lists of one length, to tuples."""

    def checked(values: list[_T]) -> tuple[_T, ...]:
        if len(values) != length:
            raise refusal(f"needs {length} items, got {len(values)}")
        return tuple(values)

    return AfterValidator(checked)


def counted(length: int) -> Any:  # noqa: ANN401 - what Annotated takes
    """Say in the schema how many items a list has; a validator of ours counts them."""
    return Field(json_schema_extra={"minItems": length, "maxItems": length})


Text = Annotated[str, AfterValidator(_not_blank)]
Size = Annotated[float, si(SIZE, above_zero=True)]
Rate = Annotated[float, si(RATE, above_zero=True)]
Time = Annotated[float, si(TIME)]
KernelLatency = Annotated[float, si(TIME, above_zero=True)]
Positive = Annotated[float, si(NUMBER, above_zero=True)]
Efficiency = Annotated[float, si(NUMBER, above_zero=True, most=10)]
"""A share that fits may put somewhat above 1, but a percentage is a mistake."""
Share = Annotated[float, si(NUMBER, most=1)]
Relative = Annotated[float, si(NUMBER, most=MOST_ERROR)]
"""A relative error."""
Extent = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Range = Annotated[list[Extent], AfterValidator(_range), counted(2)]
Some = Annotated[int, Field(ge=1, le=2**31)]
Points = Annotated[int, Field(ge=0, le=MOST_COUNTED)]
Above0 = Annotated[float, Field(ge=LEAST, le=MOST, allow_inf_nan=False)]
Microseconds = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]

Correction = Annotated[
    list[Annotated[list[Above0], Field(min_length=2, max_length=2)]],
    Field(max_length=64),
    AfterValidator(_correction),
]
"""A ``TimeCorrection``, by its knots in microseconds."""


UpdateName = Annotated[
    str, Field(pattern=rf"^(({'|'.join(Optimizer)})( fp16)?( unpooled)?|dense)$")
]
OperatorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_:.]{1,80}$")]

Kind = Annotated[Source, Field(strict=False)]
"""What a number rests on."""
_BEGINNINGS = {
    "assumed": Source.ASSUMED,
    "datasheet": Source.DATASHEET,
    "not measured": Source.DATASHEET,
}


def kind_of(sentence: str) -> Source | None:
    """Return the kind of source that a sentence begins with.

    Profiles that were written before there was ``kind`` have sentences only.
    """
    says = sentence.lower()
    return next((kind for words, kind in _BEGINNINGS.items() if says.startswith(words)), None)
