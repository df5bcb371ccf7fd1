"""The hardware profile file as pydantic models: names, units, and the bounds of every number."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from costmodel.base.limits import MOST_COUNTED, MOST_ERROR
from costmodel.base.units import US
from costmodel.domain.families import OtherFamily
from costmodel.domain.hardware import (
    CollectiveOp,
    Device,
    GemmEfficiency,
    Gpu,
    HardwareProfile,
    Host,
    KernelFamily,
    Link,
    Source,
    UnalignedRows,
)
from costmodel.domain.time_correction import TimeCorrection
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import STAND_IN
from planner.files.profile_units import FLOP_RATE, NUMBER, RATE, SIZE, TIME, parse_quantity
from planner.files.schemas import attribute_docs
from planner.files.validator import OWN_MESSAGE

_T = TypeVar("_T")


LEAST, MOST = 1e-15, 1e21
"""Between them lies every number of a machine that is not 0, in SI units, from a part of a cycle to
all FLOP of all machines. Beyond them quotients and products overflow."""


def _si(units: Mapping[str, float], *, above_zero: bool = False, most: float = MOST) -> Any:  # noqa: ANN401 - what Annotated takes
    """Return a validator to SI numbers of at least 0."""

    def number(value: object) -> float:
        try:
            found = parse_quantity(value, units)
        except ValueError as error:
            raise _refusal(str(error)) from None
        if not 0 <= found <= most or (above_zero and found == 0):
            least = "above 0" if above_zero else "at least 0"
            wanted = f"{least} and at most {most:g}" if most < MOST or found > most else least
            raise _refusal(f"must be {wanted}, got `{value}`")
        if 0 < found < LEAST:
            raise _refusal(f"must be at least {LEAST:g} in SI units if it is not 0, got `{value}`")
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


def _refusal(message: str) -> PydanticCustomError:
    return PydanticCustomError(OWN_MESSAGE, "{message}", {"message": message})


def _not_blank(text: str) -> str:
    if not text.strip():
        raise _refusal("needs a text")
    return text


def _of_all_types(entries: dict[DataType, _T]) -> dict[DataType, _T]:
    """Return entries if some of them can stand in for missing data types; else raise."""
    if entries.keys().isdisjoint(STAND_IN):
        raise _refusal(f"needs one of {', '.join(STAND_IN)}, which stand in for what is missing")
    return entries


def _range(pair: list[float]) -> tuple[float, float]:
    if len(pair) != 2 or pair[0] > pair[1]:
        raise _refusal("needs the lowest and the highest value")
    return pair[0], pair[1]


def _correction(pairs: list[tuple[float, float]]) -> TimeCorrection:
    try:
        return TimeCorrection(tuple((before * US, after * US) for before, after in pairs))
    except ValueError:
        raise _refusal("needs pairs of microseconds that grow, the model's and corrected") from None


def _of_length(length: int) -> Any:  # noqa: ANN401 - what Annotated takes
    """Return a validator of lists of one length, to tuples."""

    def checked(values: list[_T]) -> tuple[_T, ...]:
        if len(values) != length:
            raise _refusal(f"needs {length} items, got {len(values)}")
        return tuple(values)

    return AfterValidator(checked)


def _counted(length: int) -> Any:  # noqa: ANN401 - what Annotated takes
    """Say in the schema how many items a list has; a validator of ours counts them."""
    return Field(json_schema_extra={"minItems": length, "maxItems": length})


Text = Annotated[str, AfterValidator(_not_blank)]
Size = Annotated[float, _si(SIZE, above_zero=True)]
Rate = Annotated[float, _si(RATE, above_zero=True)]
Time = Annotated[float, _si(TIME)]
KernelLatency = Annotated[float, _si(TIME, above_zero=True)]
Positive = Annotated[float, _si(NUMBER, above_zero=True)]
Efficiency = Annotated[float, _si(NUMBER, above_zero=True, most=10)]
"""A share that fits may put somewhat above 1, but a percentage is a mistake."""
Share = Annotated[float, _si(NUMBER, most=1)]
Relative = Annotated[float, _si(NUMBER, most=MOST_ERROR)]
"""A relative error."""
Extent = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Range = Annotated[list[Extent], AfterValidator(_range), _counted(2)]
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


def _falling(entries: "list[UnalignedEntry]") -> "list[UnalignedEntry]":
    """Return entries if their alignments fall; else raise."""
    sizes = [entry.alignment_bytes for entry in entries]
    if sizes != sorted(set(sizes), reverse=True):
        got = " and ".join(f"{size:g}" for size in sizes)
        raise _refusal(f"needs entries of ever fewer `alignment_bytes`, got {got}")
    return entries


class _ProfileSection(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    domain: ClassVar[type | None] = None
    """The class of the domain that says what the fields are; None: nothing says so."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Say in the schema what the fields are, too."""
        made = handler(core_schema)
        properties = handler.resolve_ref_schema(made)["properties"]
        for name, text in attribute_docs(cls.domain).items() if cls.domain else ():
            if name in properties:
                properties[name].setdefault("description", text)
        return made


class Stated(_ProfileSection, Generic[_T]):
    """A number and where it comes from; a bare number has no source."""

    value: _T
    source: Text | None
    kind: Kind | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, entry: object) -> object:
        return entry if isinstance(entry, dict) else {"value": entry, "source": None}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Allow the bare number in the schema, too."""
        stated = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [stated["properties"]["value"], stated]}

    @property
    def known_kind(self) -> Source | None:
        """The kind of source that is given, or that the sentence begins with."""
        return self.kind or kind_of(self.source or "")


class GpuSection(_ProfileSection):
    """Fields of ``Gpu`` that data sheets tell."""

    domain = Gpu

    name: Text
    memory_bytes: Stated[Size]
    memory_bandwidth: Stated[Rate]
    l2_bytes: Stated[Size]
    l2_bandwidth: Stated[Rate]
    num_sms: Stated[Some]
    kernel_latency: Stated[KernelLatency]
    l1_bytes: Stated[Annotated[float, _si(SIZE)]] | None = None
    concat_efficiency: Stated[Efficiency] | None = None
    view_efficiency: Stated[Efficiency] | None = None
    in_place_efficiency: Stated[Efficiency] | None = None
    stream_correction: Stated[Correction] | None = None


class EmbeddingSection(_ProfileSection):
    """Fields of ``Gpu`` that are fitted to lookups."""

    domain = Gpu

    lookup_efficiency: Stated[Efficiency]
    update_efficiency: Stated[Efficiency]
    sort_rate: Stated[Positive]
    overlap: Stated[Share] | None = None
    lookup_time: Stated[Time] | None = None
    row_read_time: Stated[Time] | None = None
    row_update_time: Stated[Time] | None = None
    gather_bandwidth: Stated[Rate] | None = None
    gradient_time: Stated[Time] | None = None
    backward_latency: Stated[Time] | None = None
    sort_latency: Stated[Time] | None = None
    forward_latency: Stated[Time] | None = None
    bag_row_time: Stated[Time] | None = None
    bag_time: Stated[Time] | None = None
    forward_turn_time: Stated[Time] | None = None
    backward_turn_time: Stated[Time] | None = None
    forward_correction: Stated[Correction] | None = None
    backward_correction: Stated[Correction] | None = None


class HostSection(_ProfileSection):
    """Fields of ``Host``."""

    domain = Host

    memory_bytes: Stated[Size]
    pcie_bandwidth: Stated[Rate]
    uvm_bandwidth: Stated[Rate]
    launch_time: Stated[Time]
    launch_latency: Stated[Time]
    op_time: Stated[Time]
    backward_op_time: Stated[Time]
    sync_time: Stated[Time]


class LinkSection(_ProfileSection):
    """Fields of ``Link``."""

    domain = Link

    latency: Stated[Time]
    bandwidth: Stated[Rate]


class _Fit(_ProfileSection):
    """What every fit says about its accuracy."""

    error: Relative | None = None
    error_p90: Relative | None = None
    num_points: Points = 0


class UnalignedEntry(_ProfileSection):
    """Fields of ``UnalignedRows``."""

    domain = UnalignedRows

    alignment_bytes: Annotated[float, _si(SIZE, above_zero=True)]
    efficiency: Efficiency
    bandwidth_efficiency: Efficiency
    latency: Time = 0.0


class GemmEntry(_Fit):
    """Fields of ``GemmEfficiency``."""

    domain = GemmEfficiency

    source: Text
    kind: Kind | None = None
    peak: Annotated[float, _si(FLOP_RATE, above_zero=True)]
    max_efficiency: Efficiency
    tile_efficiency: Annotated[list[Efficiency], _of_length(4), _counted(4)]
    prologue_depth: Annotated[float, _si(NUMBER)]
    split_time: Time
    l2_efficiency: Efficiency
    memory_efficiency: Efficiency
    latency: KernelLatency
    vector_time: Time = 0.0
    unaligned: Annotated[list[UnalignedEntry], AfterValidator(_falling)] = Field(
        default_factory=list, max_length=4
    )
    correction: Correction | None = None
    shapes: Annotated[list[Range], _of_length(3), _counted(3)] | None = None


class OperatorsSection(_ProfileSection):
    """``Gpu.element_times``, and where they come from."""

    domain = Gpu

    source: Text
    kind: Kind | None = None
    element_times: dict[OperatorName, Time] = Field(max_length=1000)


class FamilyEntry(_Fit):
    """Fields of ``KernelFamily``."""

    domain = KernelFamily

    source: Annotated[Source, Field(strict=False)]
    origin: Text
    ranges: dict[str, Range] = Field(default_factory=dict)


class CurveEntry(_Fit):
    """A ``CollectiveCurve``, its knots as two lists."""

    op: Annotated[CollectiveOp, Field(strict=False)]
    num_ranks: Some
    num_nodes: Some = 1
    source: Annotated[Source, Field(strict=False)]
    origin: Text
    last_measured: Above0 | None = None
    bytes: list[Above0]
    us: list[Above0]

    @model_validator(mode="after")
    def _as_many_times_as_sizes(self) -> Self:
        sizes, times = len(self.bytes), len(self.us)
        if sizes != times:
            raise _refusal(f"needs `bytes` and `us` equally long, got {sizes} and {times} numbers")
        return self


class OperatorEntry(_ProfileSection):
    """An ``OperatorOverheads``; the paper's T1 to T5."""

    name: str
    count: Points
    t1_us: Microseconds
    t2_us: Microseconds
    t3_us: Microseconds
    t4_us: Microseconds
    t5_us: Microseconds


class KernelEntry(_ProfileSection):
    """A ``KernelTime``."""

    name: str
    count: Points
    us: Microseconds


class TracedSection(_ProfileSection):
    """``TracedTimes`` as lists, for names of kernels are longer than keys of YAML may be."""

    operators: list[OperatorEntry] = Field(default_factory=list)
    kernels: list[KernelEntry] = Field(default_factory=list)


class ProfileFile(_ProfileSection):
    """Fields of ``HardwareProfile``: one kind of machine."""

    domain = HardwareProfile

    name: Text
    device: Annotated[Device, Field(strict=False)] = Device.CUDA
    gpus_per_node: Stated[Some]
    gpu: GpuSection
    embedding: EmbeddingSection
    host: HostSection
    intra_node: LinkSection
    inter_node: LinkSection
    families: dict[Annotated[OtherFamily, Field(strict=False)], FamilyEntry] = Field(
        default_factory=dict
    )
    gemm: Annotated[
        dict[Annotated[DataType, Field(strict=False)], GemmEntry], AfterValidator(_of_all_types)
    ]
    operators: OperatorsSection | None = None
    collectives: list[CurveEntry]
    traced: TracedSection = Field(default_factory=TracedSection)
