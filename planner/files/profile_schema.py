"""The hardware profile file as pydantic models: names, units, and the bounds of every number."""

from typing import Annotated, ClassVar, Generic, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

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
    Spine,
    UnalignedRows,
    UpdateCost,
)
from costmodel.domain.workload import DataType
from planner.files.profile_quantities import (
    Above0,
    Correction,
    Efficiency,
    KernelLatency,
    Kind,
    Microseconds,
    OperatorName,
    Points,
    Positive,
    Range,
    Rate,
    Relative,
    Share,
    Size,
    Some,
    Text,
    Time,
    UpdateName,
    counted,
    kind_of,
    of_all_types,
    of_length,
    refusal,
    si,
)
from planner.files.profile_units import FLOP_RATE, NUMBER, SIZE
from planner.files.schemas import attribute_docs

T = TypeVar("T")


def _falling(entries: "list[UnalignedEntry]") -> "list[UnalignedEntry]":
    """Return entries if their alignments fall; else raise."""
    sizes = [entry.alignment_bytes for entry in entries]
    if sizes != sorted(set(sizes), reverse=True):
        got = " and ".join(f"{size:g}" for size in sizes)
        raise refusal(f"needs entries of ever fewer `alignment_bytes`, got {got}")
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


class Stated(_ProfileSection, Generic[T]):
    """A number and where it comes from; a bare number has no source."""

    value: T
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
    l1_bytes: Stated[Annotated[float, si(SIZE)]] | None = None
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
    listed_op_time: Stated[Time] | None = None
    listed_backward_op_time: Stated[Time] | None = None


class LinkSection(_ProfileSection):
    """Fields of ``Link``."""

    domain = Link

    latency: Stated[Time]
    bandwidth: Stated[Rate]


class SpineSection(_ProfileSection):
    """Fields of ``Spine``."""

    domain = Spine

    nodes: Stated[Some]
    oversubscription: Stated[Annotated[float, Field(ge=1, le=1000)]]


class _Fit(_ProfileSection):
    """What every fit says about its accuracy."""

    error: Relative | None = None
    error_p90: Relative | None = None
    num_points: Points = 0


class UnalignedEntry(_ProfileSection):
    """Fields of ``UnalignedRows``."""

    domain = UnalignedRows

    alignment_bytes: Annotated[float, si(SIZE, above_zero=True)]
    efficiency: Efficiency
    bandwidth_efficiency: Efficiency
    latency: Time = 0.0


class GemmEntry(_Fit):
    """Fields of ``GemmEfficiency``."""

    domain = GemmEfficiency

    source: Text
    kind: Kind | None = None
    peak: Annotated[float, si(FLOP_RATE, above_zero=True)]
    max_efficiency: Efficiency
    tile_efficiency: Annotated[list[Efficiency], of_length(4), counted(4)]
    prologue_depth: Annotated[float, si(NUMBER)]
    split_time: Time
    l2_efficiency: Efficiency
    memory_efficiency: Efficiency
    latency: KernelLatency
    vector_time: Time = 0.0
    unaligned: Annotated[list[UnalignedEntry], AfterValidator(_falling)] = Field(
        default_factory=list, max_length=4
    )
    correction: Correction | None = None
    shapes: Annotated[list[Range], of_length(3), counted(3)] | None = None


class OperatorsSection(_ProfileSection):
    """``Gpu.element_times``, and where they come from."""

    domain = Gpu

    source: Text
    kind: Kind | None = None
    element_times: dict[OperatorName, Time] = Field(max_length=1000)


class UpdateEntry(_ProfileSection):
    """Fields of ``UpdateCost``."""

    domain = UpdateCost

    id_time: Time = 0.0
    row_time: Time = 0.0
    id_column_time: Time = 0.0
    row_column_time: Time = 0.0
    row_pair_time: Time = 0.0
    bag_time: Time = 0.0
    bag_column_time: Time = 0.0
    miss_time: Time = 0.0
    miss_column_time: Time = 0.0
    element_time: Time = 0.0


class UpdatesSection(_ProfileSection):
    """``Gpu.update_costs``, and where they come from."""

    domain = Gpu

    source: Text
    kind: Kind | None = None
    update_costs: dict[UpdateName, UpdateEntry]


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
            raise refusal(f"needs `bytes` and `us` equally long, got {sizes} and {times} numbers")
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
    spine: SpineSection | None = None
    families: dict[Annotated[OtherFamily, Field(strict=False)], FamilyEntry] = Field(
        default_factory=dict
    )
    gemm: Annotated[
        dict[Annotated[DataType, Field(strict=False)], GemmEntry], AfterValidator(of_all_types)
    ]
    updates: UpdatesSection | None = None
    operators: OperatorsSection | None = None
    collectives: list[CurveEntry]
    traced: TracedSection = Field(default_factory=TracedSection)
