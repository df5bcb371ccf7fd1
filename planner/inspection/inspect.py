"""From recorded ids to tables: matching features with tables, and updating a workload file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from costmodel.base.errors import InputError, Problem, suggestion
from costmodel.domain.workload import Workload
from costmodel.inputs.distribution import InputDistribution
from planner.environment.extras import require
from planner.files.disk import read_text, source_name
from planner.files.source import parse_yaml
from planner.files.workload_reading import parse_workload, workload_from_document
from planner.files.workload_text import dump_workload_data, inputs_data
from planner.inspection.reading import read_samples
from planner.inspection.samples import FeatureSample, RecordedIds
from planner.inspection.statistics import TableObservation, length_spread, observe
from planner.show.format import count

_ROWS = "num_embeddings is the largest id seen + 1"
DIGITS = 5
"""Significant digits of shares and hits in files; the sample is no more precise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Observations of the tables in a file of recorded ids."""

    source: str
    batch_samples: int
    """Number of samples of one batch."""
    tables: tuple[TableObservation, ...]
    skipped: tuple[str, ...] = ()
    """Names of arrays that are not ids."""
    unknown: tuple[str, ...] = ()
    """Features of the file that the workload does not have."""
    missing: tuple[str, ...] = ()
    """Tables of the workload that the file does not have."""
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By table, features that the file lacks while it has others of the table; such a table stays
    as it is."""
    length_spread: float | None = None
    """Standard deviation of the ids in batches of ``local_batch_size``, over their mean."""
    padding: Mapping[str, int] = field(default_factory=dict)
    """Number of negative ids by feature, taken as padding, not as lookups."""


def inspect(
    path: str | Path, *, workload: Workload | None = None, batch_samples: int | None = None
) -> Inspection:
    """Return what a file of recorded ids says about tables.

    Parameters
    ----------
    path
        A .pt, .npz, .npy or .parquet file.
    workload
        Whose tables to look at: features go to the tables that name them, or, if the file has no
        names, in order. Without it every feature is a table.
    batch_samples
        Samples of one batch; by default the batches the file keeps apart, or all it has.

    Raises
    ------
    InputError
        The file is not one of recorded ids, or does not fit the workload.
    MissingDependencyError
        SciPy, which fits laws to counts, is not installed.

    """
    require("`planner inspect`", "inspect", "scipy")
    samples = read_samples(path)
    source = source_name(path)
    size = _batch_samples(samples, batch_samples, source)
    if workload is None:
        return _features_as_tables(samples, size, source)
    return _tables_of(workload, samples, size, source)


def _features_as_tables(samples: RecordedIds, batch_samples: int, source: str) -> Inspection:
    """Return what samples say if every feature has a table of its own."""
    tables = tuple(
        observe(feature.name, [feature], batch_samples=batch_samples)
        for feature in samples.features
        if len(feature.ids)
    )
    empty = tuple(feature.name for feature in samples.features if not len(feature.ids))
    return Inspection(
        source=source,
        batch_samples=batch_samples,
        tables=tables,
        skipped=(*samples.skipped, *empty),
        padding=_padding(samples.features),
    )


def _tables_of(
    workload: Workload, samples: RecordedIds, batch_samples: int, source: str
) -> Inspection:
    """Return what samples say of a workload's tables."""
    matched, absent = _matched(samples, workload, source)
    _check_rows(matched, workload, source)
    all_features = [feature for features in matched.values() for feature in features]
    known = {name for table in workload.tables for name in (table.name, *table.features)}
    unknown = tuple(f.name for f in samples.features if f.name not in known)
    return Inspection(
        source=source,
        batch_samples=batch_samples,
        tables=tuple(
            observe(
                name,
                features,
                batch_samples=batch_samples,
                num_embeddings=workload.table(name).num_embeddings,
            )
            for name, features in matched.items()
        ),
        skipped=samples.skipped,
        unknown=unknown if samples.named else (),
        missing=tuple(t.name for t in workload.tables if t.name not in {*matched, *absent}),
        absent=absent,
        length_spread=length_spread(all_features, workload.local_batch_size),
        padding=_padding(all_features),
    )


def _padding(features: Sequence[FeatureSample]) -> dict[str, int]:
    return {feature.name: feature.padding for feature in features if feature.padding}


def _batch_samples(samples: RecordedIds, asked: int | None, source: str) -> int:
    """Return the samples of a batch: those asked for, or as recorded."""
    recorded = samples.features[0].num_samples
    if asked is None:
        return recorded // samples.num_batches
    if asked > recorded:
        message = f"a batch of {count(asked, 'sample')} is more than the {recorded:,} in the file"
        raise InputError(source, (Problem(message=message),))
    return asked


def _matched(
    samples: RecordedIds, workload: Workload, source: str
) -> tuple[dict[str, tuple[FeatureSample, ...]], dict[str, tuple[str, ...]]]:
    """Return the features of tables with all of theirs in the file.

    And the lacking ones of others.
    """
    by_name = {feature.name: feature for feature in samples.features}
    if not samples.named:
        names = [name for table in workload.tables for name in table.features]
        if len(names) != len(by_name):
            raise InputError(source, (_counts_differ(len(by_name), len(names)),))
        by_name = dict(zip(names, samples.features, strict=True))
    matched, absent = {}, {}
    for table in workload.tables:
        features = [by_name[name] for name in table.features if name in by_name]
        lacking = tuple(name for name in table.features if name not in by_name)
        if not features and table.name in by_name:
            features, lacking = [by_name[table.name]], ()
        if features and lacking:
            absent[table.name] = lacking
        elif any(len(feature.ids) for feature in features):
            matched[table.name] = tuple(features)
    if not matched:
        raise InputError(source, tuple(_nothing_matched(by_name, absent)))
    return matched, absent


def _nothing_matched(
    by_name: Mapping[str, FeatureSample], absent: Mapping[str, Sequence[str]]
) -> Iterator[Problem]:
    found = ", ".join(list(by_name)[:5])
    has = f"the file has {found}; tables are found by `name` or `feature_names`"
    for table, lacking in absent.items():
        message = f"table `{table}` has features that are not in this file: {', '.join(lacking)}"
        yield Problem(message=message, hint=suggestion(lacking[0], list(by_name)) or has)
    if not absent:
        yield Problem(message="no table of the workload has a feature in this file", hint=has)


def _counts_differ(here: int, there: int) -> Problem:
    return Problem(
        message=f"the file has {here} features without names, the workload {there}",
        hint="without names they go to tables in order, so the numbers must agree",
    )


def _check_rows(
    matched: Mapping[str, Sequence[FeatureSample]], workload: Workload, source: str
) -> None:
    problems = []
    for name, features in matched.items():
        rows = workload.table(name).num_embeddings
        largest = max(int(feature.ids.max()) for feature in features if len(feature.ids))
        if largest >= rows:
            problems.append(
                Problem(
                    message=f"table `{name}` has {rows:,} rows, but the file has id {largest:,}",
                    hint="give the right `num_embeddings`, or hash the ids as training does",
                )
            )
    if problems:
        raise InputError(source, tuple(problems))


def remarks(inspection: Inspection) -> Iterator[str]:
    """Yield warnings for those who use these counts for a model."""
    for table in inspection.tables:
        ids = f"{count(table.num_distinct, 'distinct id')} of up to {table.largest_id:,}"
        if table.is_unhashed:
            yield (
                f"`{table.name}` has ids that are no rows ({ids}): unhashed ones. Its rows are "
                "given as the distinct ids seen; hash them as training does, or keep them in a "
                "key-value table"
            )
        elif table.is_sparse:
            yield (
                f"`{table.name}` has {ids}: unhashed ones, or few of many rows. Its rows are "
                "given as the largest id + 1"
            )
    for name, lacking in inspection.absent.items():
        where = f"`{name}` stays as it is: this file lacks its {_quoted(lacking)}"
        yield f"{where}, and has others of its features"
    if inspection.unknown:
        there = [*inspection.missing, *chain(*inspection.absent.values())]
        meant = (suggestion(name, there) for name in inspection.unknown)
        hints = "".join(f"; {each}" for each in dict.fromkeys(filter(None, meant)))
        yield (
            f"features of no table of the workload, left out: {_quoted(inspection.unknown)}{hints}"
        )
    if inspection.missing:
        yield f"nothing recorded of: {', '.join(inspection.missing)}"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def fragment(
    inspection: Inspection, *, law: str = "histogram", embedding_dim: int | None = None
) -> str:
    """Return the tables as YAML; with an embedding dimension it is a whole workload file."""
    from planner.files.workload_schema import Head

    rows = [
        {
            "name": table.name,
            "num_embeddings": table.num_embeddings,
            **_reads(table, law),
        }
        for table in inspection.tables
    ]
    data: dict[str, Any] = {"tables": rows}
    remark = [f"# counted in {_one_line(inspection.source)}; {_ROWS}"]
    unhashed = [table.name for table in inspection.tables if table.is_unhashed]
    if unhashed:
        remark.append(f"# but of {_one_line(', '.join(unhashed))}: the distinct ids seen")
    if embedding_dim is None:
        remark.append("# a workload needs embedding_dim, too: here for all, or in every table")
    else:
        remark.append("# local_batch_size, samples per GPU, is assumed: put in your own")
        batch = Head().local_batch_size
        data = {"local_batch_size": batch, "defaults": {"embedding_dim": embedding_dim}, **data}
    text = dump_workload_data(data)
    _check_read(text if embedding_dim else f"{text}\ndefaults: {{embedding_dim: 4}}\n", inspection)
    return "\n".join([*remark, text])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _check_read(written: str, inspection: Inspection) -> None:
    """Check that commands that read workloads accept the counts.

    Raises
    ------
    InputError
        A model cannot have as many ids per sample, or as many tables.

    """
    try:
        parse_workload(written, inspection.source)
    except InputError as error:
        message = "what was counted is no workload: {}"
        problems = [Problem(message=message.format(each.message)) for each in error.problems]
        raise InputError(inspection.source, problems) from None


def load_patched(path: str | Path) -> tuple[dict[str, Any], Workload]:
    """Return a workload file as plain data, and as a workload."""
    document = parse_yaml(read_text(path), source_name(path))
    workload = workload_from_document(document)
    return document.data, workload


def patched(data: Mapping[str, Any], inspection: Inspection, *, law: str = "histogram") -> str:
    """Return a workload file's text with the counted lengths and distributions.

    Everything else stays as it was written, but for comments and layout.
    """
    seen = {table.name: table for table in inspection.tables}
    rows = []
    for row in data["tables"]:
        table = seen.get(row["name"])
        rows.append({**row, **({} if table is None else _reads(table, law))})
    spread = inspection.length_spread
    counted = {} if spread is None else {"length_spread": _rounded(spread)}
    text = dump_workload_data({**data, **counted, "tables": rows})
    _check_read(text, inspection)
    return text


def _reads(table: TableObservation, law: str) -> dict[str, Any]:
    """Return the fields of a workload file for how a batch reads a table."""
    return {
        "pooling_factor": _rounded(table.pooling_factor),
        **(
            {"pooling_std": _rounded(table.pooling_std), "longest_bag": table.longest_bag}
            if table.pooling_std
            else {}
        ),
        "inputs": _input_fields(table.inputs_as(law)),
    }


def _input_fields(inputs: InputDistribution) -> dict[str, Any]:
    """Return the distribution's fields with few digits."""
    return {
        key: [_rounded(part) for part in value] if isinstance(value, list) else _short(value)
        for key, value in inputs_data(inputs).items()
    }


def _short(value: object) -> object:
    return _rounded(value) if isinstance(value, float) else value


def _rounded(value: float) -> float:
    return round(value, 1) if value >= 10**DIGITS else float(f"{value:.{DIGITS}g}")
