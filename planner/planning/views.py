"""How plans show themselves in a notebook: a line, a table, charts and data frames."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from planner.pages.charts import Chart, chart
from planner.pages.frames import dataframe
from planner.pages.tables import html_table, text
from planner.show.format import count, duration, rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from costmodel.base.errors import PlannerError
    from costmodel.step.timeline import Timeline
    from planner.planning.api import Planned


class PlannedViews:
    """What notebooks ask of a plan; ``Planned`` has its fields."""

    __slots__ = ()

    def __repr__(self: "Planned") -> str:  # type: ignore[misc]
        report = self.report
        return (
            f"<Planned {report.workload or 'workload'}: {count(report.num_tables, 'table')} on "
            f"{report.world_size:,} × {report.hardware}, {duration(report.expected)} a step, "
            f"{rate(report.samples_per_second)} samples/s>"
        )

    def _repr_html_(self: "Planned") -> str:  # type: ignore[misc]
        from planner.planning.plan_page import headline, table_columns

        facts = " · ".join(
            f"{text(name)} <b>{text(value)}</b>" for name, value in headline(self.report)
        )
        return f"<p>{facts}</p>{html_table(table_columns(self))}"

    def to_dataframe(self: "Planned") -> Any:  # type: ignore[misc]  # noqa: ANN401 - a pandas.DataFrame
        """Return one row for every shard as a ``pandas.DataFrame``: table, type, kernel, block."""
        from planner.files.plans import table_data

        rows = []
        for sharding in self.plan.tables:
            data = table_data(sharding)
            del data["shards"]  # those on many ranks together
            rows += [{**data, **asdict(shard)} for shard in sharding.shards]
        return dataframe(rows)

    def to_html(self: "Planned") -> str:  # type: ignore[misc]
        """Return a page that needs no network: critical path, ranks, timeline, memory, tables."""
        from planner.planning.plan_page import plan_page

        return plan_page(self, _timeline(self))

    def plot_breakdown(self: "Planned") -> Chart:  # type: ignore[misc]
        """Return where the step goes, as an Altair chart."""
        from planner.planning.plan_charts import breakdown_spec

        return chart(breakdown_spec([self.report], ["step"]))

    def plot_ranks(self: "Planned") -> Chart:  # type: ignore[misc]
        """Return what three streams of every rank do, as an Altair chart."""
        from planner.planning.plan_charts import ranks_spec

        return chart(ranks_spec(_timeline(self)))

    def plot_timeline(self: "Planned", *ranks: int) -> Chart:  # type: ignore[misc]
        """Return the timeline of some ranks (none: the busiest and the idlest) as Altair chart."""
        from planner.planning.plan_charts import plan_timeline_spec

        return chart(plan_timeline_spec(_timeline(self), ranks or None))


def _timeline(planned: "Planned") -> "Timeline":
    from planner.planning.api import simulate

    return simulate(planned)


class Comparison(tuple["Planned", ...]):  # noqa: SLOT001 - a tuple with slots holds no errors
    """Plans of several sharders for one workload, best first: a tuple that notebooks can show."""

    errors: "Mapping[str, PlannerError]"
    """Why sharders have no plan, by their names."""

    def __new__(
        cls, plans: "Iterable[Planned]", errors: "Mapping[str, PlannerError] | None" = None
    ) -> Self:
        """Make a tuple of the plans, with the errors beside them."""
        self = super().__new__(cls, plans)
        self.errors = errors or {}
        return self

    def __repr__(self) -> str:
        from planner.planning.compare_page import sharder_names_of

        both = zip(sharder_names_of(self), self, strict=True)
        plans = ", ".join(f"{name} {duration(each.report.expected)}" for name, each in both)
        return f"<Comparison of {count(len(self), 'sharder')}: {plans}>"

    def _repr_html_(self) -> str:
        from planner.planning.compare_page import comparison_columns

        return html_table(comparison_columns(self, self.errors)) if self else repr(self)

    def to_dataframe(self) -> Any:  # noqa: ANN401 - a pandas.DataFrame
        """Return one row for every sharder as a ``pandas.DataFrame``, with the keys of JSON."""
        from planner.planning.report_data import report_data

        data = (report_data(each.report) for each in self)
        return dataframe([
            {name: value for name, value in row.items() if not isinstance(value, list | dict)}
            for row in data
        ])

    def to_html(self) -> str:
        """Return a page that needs no network: steps beside each other, and a table."""
        from planner.planning.compare_page import comparison_page

        return comparison_page(self, self.errors)

    def plot_breakdown(self) -> Chart:
        """Return where the steps go, as an Altair chart."""
        from planner.planning.compare_page import comparison_spec

        return chart(comparison_spec(self))
