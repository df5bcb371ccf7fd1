"""The results of ``plan`` and ``compare``: plans with their workload and report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from planner.files.disk import write_text
from planner.planned.report import Report
from planner.planned.shown import shown

if TYPE_CHECKING:
    from costmodel.base.errors import PlannerError
    from planner.pages.charts import Chart


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Planned:
    """A plan with its workload, machine and report."""

    workload: Workload
    topology: Topology
    plan: ShardingPlan
    report: Report
    hardware_name: str
    """The profile's name, or the path it was read from."""
    torchrec: Mapping[str, Any] | None = None
    """Paths of the tables in a TorchRec model, if known, for ``planner torchrec export``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``plan.json``: the report, and the workload it is about."""
        return shown(dict, "planner.views.report_data:plan_file_data", self)

    def save(self, path: str | Path) -> None:
        """Write ``plan.json``, as a whole or not at all; ``-`` is standard output."""
        from planner.files.plans import plan_text

        write_text(path, plan_text(self.to_dict()))

    def __repr__(self) -> str:
        return shown(str, "planner.views.notebook:plan_line", self)

    def _repr_html_(self) -> str:
        return shown(str, "planner.views.notebook:plan_table", self)

    def to_dataframe(self) -> Any:  # noqa: ANN401 - a pandas.DataFrame
        """Return one row for every shard as a ``pandas.DataFrame``: table, type, kernel, block."""
        return shown(object, "planner.views.notebook:shards_dataframe", self)

    def to_html(self) -> str:
        """Return a page that needs no network: critical path, ranks, timeline, memory, tables."""
        return shown(str, "planner.views.notebook:simulated_page", self)

    def plot_breakdown(self) -> "Chart":
        """Return an Altair chart of the critical path by stage."""
        return shown(object, "planner.views.notebook:breakdown_chart", self)

    def plot_ranks(self) -> "Chart":
        """Return an Altair chart of the busy time of three streams of every rank."""
        return shown(object, "planner.views.notebook:ranks_chart", self)

    def plot_timeline(self, *ranks: int) -> "Chart":
        """Return an Altair chart of the timeline of ranks; none: of up to eight kinds."""
        return shown(object, "planner.views.notebook:timeline_chart", self, ranks)


class Comparison(tuple[Planned, ...]):  # noqa: SLOT001 - a tuple with slots holds no errors
    """Plans of several sharders for one workload, best first: a tuple that notebooks can show."""

    errors: "Mapping[str, PlannerError]"
    """Why some sharders have no plan, by sharder name."""

    def __new__(
        cls, plans: "Iterable[Planned]", errors: "Mapping[str, PlannerError] | None" = None
    ) -> Self:
        """Make a tuple of the plans, and keep the errors with it."""
        self = super().__new__(cls, plans)
        self.errors = errors or {}
        return self

    def __repr__(self) -> str:
        return shown(str, "planner.views.notebook:comparison_line", self)

    def _repr_html_(self) -> str:
        return shown(str, "planner.views.notebook:comparison_table", self)

    def to_dataframe(self) -> Any:  # noqa: ANN401 - a pandas.DataFrame
        """Return one row for every sharder as a ``pandas.DataFrame``, with the keys of JSON."""
        return shown(object, "planner.views.notebook:reports_dataframe", self)

    def to_html(self) -> str:
        """Return a page that needs no network: a chart of the steps, and a table."""
        return shown(str, "planner.views.compare_page:comparison_page", self, self.errors)

    def plot_breakdown(self) -> "Chart":
        """Return an Altair chart of the critical paths by stage."""
        return shown(object, "planner.views.notebook:comparison_chart", self)
