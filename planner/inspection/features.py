"""Which columns go to which tables, and whether names and rows that were given are right."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from costmodel.base.errors import InputError, Problem, suggestion
from costmodel.domain.workload import Workload
from planner.inspection.asked import Asked
from planner.inspection.recorded import Recorded


def check_names(recorded: Recorded, asked: Asked) -> None:
    """Refuse names of columns that there are not.

    Raises
    ------
    InputError
        There are some.

    """
    known = list(dict.fromkeys(recorded.names))
    unknown = [name for name in asked.named if name not in known]
    problems = [
        Problem(message=f"no column `{name}`", hint=suggestion(name, known) or _has(known))
        for name in unknown
    ]
    for name in asked.tables:
        if name in recorded.refused:
            message = f"`{name}` cannot be a table: {recorded.refused[name]}"
            problems.append(Problem(message=message))
    if problems:
        raise InputError(recorded.name, tuple(problems))


def _has(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    return f"it has {', '.join(names[:8])}{more}"


def features_of_tables(recorded: Recorded, asked: Asked) -> dict[str, tuple[str, ...]]:
    """Return the columns of every table: each has one of its own, but for those that share one."""
    shared = {name for features in asked.share.values() for name in features}
    tables: dict[str, tuple[str, ...]] = {}
    for column in recorded.columns:
        for table, features in asked.share.items():
            if column in features:
                tables.setdefault(table, features)
        if column not in shared:
            tables[column] = (column,)
    return tables


def matched(
    recorded: Recorded, workload: Workload
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return the columns of tables with all of theirs in the file, and the lacking ones of others.

    Columns of no table are tables of their own, so that it is told what they are.

    Raises
    ------
    InputError
        No table has all of its features.

    """
    here = dict.fromkeys(recorded.columns)
    names = {name: name for name in here}
    if not recorded.named:
        wanted = [name for table in workload.tables for name in table.features]
        if len(wanted) != len(here):
            raise InputError(recorded.name, (_counts_differ(len(here), len(wanted)),))
        names = dict(zip(wanted, here, strict=True))
    found, absent = {}, {}
    for table in workload.tables:
        features = [names[name] for name in table.features if name in names]
        lacking = tuple(name for name in table.features if name not in names)
        if not features and table.name in names:
            features, lacking = [names[table.name]], ()
        if features and lacking:
            absent[table.name] = lacking
        elif features:
            found[table.name] = tuple(features)
    if not found:
        raise InputError(recorded.name, tuple(_nothing_matched(list(names), absent)))
    return found, absent


def _nothing_matched(
    names: Sequence[str], absent: Mapping[str, Sequence[str]]
) -> Iterator[Problem]:
    has = (
        f"{_has(names).replace('it', 'the file', 1)}; tables are found by `name` or `feature_names`"
    )
    for table, lacking in absent.items():
        message = f"table `{table}` has features that are not in this file: {', '.join(lacking)}"
        yield Problem(message=message, hint=suggestion(lacking[0], list(names)) or has)
    if not absent:
        yield Problem(message="no table of the workload has a feature in this file", hint=has)


def _counts_differ(here: int, there: int) -> Problem:
    return Problem(
        message=f"the file has {here} features without names, the workload {there}",
        hint="without names they go to tables in order, so the numbers must agree",
    )


def check_rows(rows: Iterable[tuple[str, int, int]], source: str) -> None:
    """Refuse ids beyond the rows that tables were said to have.

    Parameters
    ----------
    rows
        Tables that have ids for rows: name, rows, and largest id.
    source
        Name of the file.

    Raises
    ------
    InputError
        There are some.

    """
    problems = [
        Problem(
            message=f"table `{name}` has {number:,} rows, but the file has id {largest:,}",
            hint="give the right `num_embeddings`, or hash ids as training does: "
            f"`--hash {name}={number}`",
        )
        for name, number, largest in rows
        if largest >= number
    ]
    if problems:
        raise InputError(source, tuple(problems))
