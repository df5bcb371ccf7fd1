"""Reading workload files: YAML to ``Workload``, with every problem at once."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from costmodel.base.errors import InputError
from costmodel.base.limits import MOST_TABLES, shown
from costmodel.domain.workload import DenseModel, EmbeddingTable, Workload
from costmodel.inputs.distribution import InputDistribution, ReuseHistogram, UniqueFraction, Zipf
from costmodel.operators.operator_list import OperatorList, Size
from planner.files.disk import read_text, source_name
from planner.files.kinds import FileKind, check_kind
from planner.files.source import Document, KeyPath, parse_yaml
from planner.files.validator import Validator, in_order

if TYPE_CHECKING:
    from planner.files import workload_schema as schema
    from sharders.problem.options import Refusal

Part = TypeVar("Part", EmbeddingTable, DenseModel, Workload)

_LAWS = ("zipf", "reuse_histogram", "unique_fraction")
_SYNONYMS = {
    "batch_size": "write `local_batch_size`: samples per GPU and step",
    "global_batch_size": "write `local_batch_size`: the global batch size over the number of GPUs",
    "rows": "write `num_embeddings`",
    "dim": "write `embedding_dim`",
    "dtype": "write `data_type`",
    "features": "write `feature_names`",
    "kernels": "write `compute_kernels`",
    "sharding": "write `sharding_types`",
    "placement": "write `ranks`",
    **{law: f"write `inputs: {{{law}: ...}}`" for law in _LAWS},
    "constraints": "write what it holds, such as `sharding_types`, as fields of the table",
}
"""Names that other tools use, and what to write here."""

_MEANT = {
    "num_embeddings": "these are rows, not bytes or parameters",
    "embedding_dim": "these are the numbers of one row",
    "pooling_factor": "these are ids per sample, not per batch",
    "local_batch_size": "these are samples per GPU and step",
    "ranks": "ranks count GPUs, from 0",
}
"""Hints for numbers that are too large, by field."""

_NEEDED = ("name", "num_embeddings", "embedding_dim")
_COUNTED = ("num_lookups", "mean_hits", "range_lookups")
"""Fields of ``inputs`` that belong to a law, by the names that messages have."""
_TOGETHER = ("restore_site", "pipeline", "interaction")
"""Fields of parts of a workload that may not go together, by the names that errors have."""

_ANY_TABLE = EmbeddingTable(name="table", num_embeddings=1, embedding_dim=4)
_ANY_WORKLOAD = Workload(tables=(_ANY_TABLE,))


def load_workload(path: str | Path) -> Workload:
    """Read a workload file (YAML or JSON; ``-`` is standard input).

    Raises
    ------
    InputError
        With every problem of the file, each with line and column.

    """
    return read_workload(path)[0]


def read_workload(path: str | Path) -> tuple[Workload, Document]:
    """Return the workload of a file, and the document that knows the lines."""
    document = parse_yaml(read_text(path), source_name(path))
    return workload_from_document(document), document


def refused(
    workload: Workload, document: Document | None, refusals: "Sequence[Refusal]"
) -> InputError:
    """Return the error of tables' constraints that cannot be met, with lines if there is a file."""
    problems = [refusal.problem for refusal in refusals]
    if document is None:
        return InputError(workload.name, tuple(problems))
    number = {table.name: number for number, table in enumerate(workload.tables)}
    located = [
        document.problem(
            refusal.problem.message,
            ("tables", number[refusal.table], refusal.field),
            hint=refusal.problem.hint,
        )
        for refusal in refusals
    ]
    return InputError(document.source, in_order(located), document.text)


def parse_workload(text: str, source: str) -> Workload:
    """Read a workload from a text; `source` is what messages call it."""
    return workload_from_document(parse_yaml(text, source))


def workload_from_document(document: Document, path: KeyPath = ()) -> Workload:
    """Return the workload at a path of a document."""
    data = document.data
    for part in path:
        data = data[part]
    if not path:
        check_kind(document, FileKind.WORKLOAD)
    builder = _Builder(Validator(document, _SYNONYMS), path)
    workload = builder.workload(data)
    problems = builder.validator.problems
    if workload is None or problems:
        raise InputError(document.source, in_order(problems), document.text)
    return workload


class _Builder:
    """Makes domain objects of the parts of a workload file, and notes every problem."""

    def __init__(self, validator: Validator, path: KeyPath) -> None:
        self.validator = validator
        self.path = path
        self.defaults_path = (*path, "defaults")

    def workload(self, data: object) -> Workload | None:
        if not isinstance(data, dict):
            self._note_no_mapping(data)
            return None
        head, site = self._head(data)
        batch = head.local_batch_size if head else _ANY_WORKLOAD.local_batch_size
        dense = self._dense(data)
        tables = self._tables(data, batch)
        if head is None or dense is None or tables is None:
            return None
        try:
            return dataclasses.replace(head, dense=dense, tables=tables, restore_site=site)
        except ValueError as error:  # the parts are right, but do not go together
            field = next((name for name in _TOGETHER if name in str(error)), "interaction")
            at = self._holder(field, ((*self.path, "dense"), self.path))
            self.validator.note(str(error), (*at, field))
            return None

    def _head(self, data: Mapping[str, Any]) -> tuple[Workload | None, int | None]:
        """Return a workload of everything but tables and dense model, and their placeholders.

        And the number of the layer ``restore_site``, which the placeholder may lack.
        """
        from planner.files import workload_schema as schema

        apart = ("tables", "defaults", "dense")
        rest = {key: value for key, value in data.items() if key not in apart}
        values, complete = self.validator.fields(
            schema.Head, rest, self.path, known=schema.WorkloadFile
        )
        comms = values.pop("comms", schema.Comms())
        values |= {"comms_forward": comms.forward, "comms_backward": comms.backward}
        site = values.pop("restore_site", None)
        workload = self._domain(_ANY_WORKLOAD, values, self.path)
        return (workload if complete else None), site

    def _dense(self, data: Mapping[str, Any]) -> DenseModel | None:
        from planner.files import workload_schema as schema

        if "dense" not in data:
            return DenseModel()
        path, given = (*self.path, "dense"), data["dense"]
        inside = given.get("operators") if isinstance(given, dict) else None
        if isinstance(inside, dict):
            given = {name: value for name, value in given.items() if name != "operators"}
        values, usable = self.validator.fields(schema.DenseByFile, given, path)
        listed = inside if isinstance(inside, dict) else values.get("operators")
        if listed is not None:
            values["operators"] = self._operators(listed, (*path, "operators"))
            usable = usable and values["operators"] is not None
        dense = self._domain(DenseModel(), values, path)
        return dense if usable else None

    def _operators(self, given: str | dict[str, Any], path: KeyPath) -> OperatorList[Size] | None:
        """Return operators that are given, or are in a file beside this one.

        None if something is wrong, which is noted.
        """
        from planner.files.dense import load_operators, read_operators

        if isinstance(given, dict):
            return read_operators(self.validator, given, path)
        beside = Path(self.validator.document.source).parent / given
        try:
            return load_operators(beside)
        except InputError as error:
            first = error.problems[0]
            where = f"{beside}:{first.line}" if first.line else str(beside)
            self.validator.note(
                f"`operators` names a file that cannot be used ({where}): {first.message}",
                path,
                hint="planner trace-model writes it",
            )
            return None

    def _tables(self, data: Mapping[str, Any], batch: int) -> tuple[EmbeddingTable, ...] | None:
        from planner.files import workload_schema as schema

        rows = data.get("tables")
        if not isinstance(rows, list) or not rows:
            self._note_no_tables(data)
            return None
        if len(rows) > MOST_TABLES:
            message = f"`tables` has {len(rows):,} tables, and at most {MOST_TABLES:,} can be"
            self.validator.note(message, (*self.path, "tables"))
            return None
        common: dict[str, Any] = {}
        usable = True
        if "defaults" in data:
            common, usable = self.validator.fields(
                schema.TableFields, data["defaults"], self.defaults_path
            )
        tables: list[EmbeddingTable | None] = []
        for number, row in enumerate(rows):
            path = (*self.path, "tables", number)
            own, complete = self.validator.fields(schema.Table, row, path)
            copies = own.pop("count", 1)
            if own or complete:
                table = self._table(common, own, path, batch=batch, ask=usable and complete)
                tables += self._copied(table, copies, path) if usable and complete else [None]
        unique = self._note_twice(rows)
        built = tuple(table for table in tables if table is not None)
        return built if unique and len(built) == len(tables) >= len(rows) else None

    def _copied(
        self, table: EmbeddingTable | None, copies: int, path: KeyPath
    ) -> Sequence[EmbeddingTable | None]:
        """Return so many tables like one, with numbered names; None in them: it is wrong."""
        if table is None or copies == 1:
            return [table]
        if table.feature_names:
            message = "tables of a `count` have features of their own: leave out `feature_names`"
            self.validator.note(message, (*path, "feature_names"))
            return [None]
        names = (f"{table.name}_{number}" for number in range(copies))
        return [dataclasses.replace(table, name=name) for name in names]

    def _table(
        self,
        common: Mapping[str, Any],
        own: Mapping[str, Any],
        path: KeyPath,
        *,
        batch: int,
        ask: bool,
    ) -> EmbeddingTable | None:
        """Return a table; None if it is wrong, which is noted. ``ask``: missing fields are, too."""
        values = {**common, **own}
        missing = [name for name in _NEEDED if values.get(name) is None]
        if missing and ask:
            self._note_missing(missing, values, path)
        if "inputs" in values:
            at = (*(path if "inputs" in own else self.defaults_path), "inputs")
            lookups = max(1.0, batch * values.get("pooling_factor", 1.0))
            values["inputs"] = self._inputs(values["inputs"], lookups, at)
            if values["inputs"] is None:
                missing = [*missing, values.pop("inputs")]
        present = {name: value for name, value in values.items() if value is not None}
        table = self._domain(_ANY_TABLE, present, path, self.defaults_path)
        return None if missing else table

    def _inputs(
        self, inputs: "schema.Inputs", lookups: float, path: KeyPath
    ) -> InputDistribution | None:
        """Return how rows are drawn by a batch's lookups; None: what is wrong is noted."""
        laws = [law for law in _LAWS if getattr(inputs, law) is not None]
        if len(laws) != 1:
            self.validator.note(
                "`inputs` needs exactly one of zipf, reuse_histogram and unique_fraction"
                + (f", got {' and '.join(laws)}" if laws else ""),
                path,
            )
            return None
        counted = lookups if inputs.num_lookups is None else inputs.num_lookups
        try:
            if inputs.zipf is not None:
                return Zipf(exponent=inputs.zipf, hot_rows_first=inputs.hot_rows_first)
            if inputs.unique_fraction is not None:
                return UniqueFraction(fraction=inputs.unique_fraction, num_lookups=counted)
            return ReuseHistogram(
                row_shares=tuple(inputs.reuse_histogram or ()),
                num_lookups=counted,
                mean_hits=tuple(inputs.mean_hits or ()),
                range_lookups=tuple(inputs.range_lookups or ()),
                range_rows=tuple(inputs.range_rows or ()),
            )
        except ValueError as error:
            given = (name for name in _COUNTED if name in str(error))
            self.validator.note(str(error), (*path, next(given, laws[0])))
            return None

    def _domain(
        self, base: Part, values: Mapping[str, Any], path: KeyPath, *elsewhere: KeyPath
    ) -> Part | None:
        """Return a copy of ``base`` with new values.

        None if its class refuses some, which is noted.
        """
        try:
            return dataclasses.replace(base, **values)
        except ValueError as error:
            self._note_refused(base, values, (path, *elsewhere), error)
            return None

    def _note_refused(
        self, base: Part, values: Mapping[str, Any], paths: Sequence[KeyPath], error: ValueError
    ) -> None:
        """Note every value that a class refuses, by trying each alone."""
        alone = False
        for field, value in values.items():
            try:
                dataclasses.replace(base, **{field: value})
            except ValueError as refusal:
                alone = True
                at: KeyPath = self._holder(field, paths)
                self.validator.note(
                    str(refusal).replace(field, f"`{field}`", 1),
                    (*at, field),
                    hint=_likely(field, value, values, str(refusal)),
                )
        if not alone:
            self.validator.note(str(error), paths[0])

    def _holder(self, field: str, paths: Sequence[KeyPath]) -> KeyPath:
        """Return the first of the paths at which the document has a field."""
        has = self.validator.document.has
        return next((path for path in paths if has((*path, field))), paths[0])

    def _note_no_mapping(self, data: object) -> None:
        what = "a list" if isinstance(data, list) else "a value"
        hint = "put the tables under a `tables:` key" if isinstance(data, list) else None
        self.validator.note(f"a workload must be a mapping, got {what}", self.path, hint=hint)

    def _note_missing(
        self, missing: Sequence[str], values: Mapping[str, Any], path: KeyPath
    ) -> None:
        table = f" in table `{values['name']}`" if values.get("name") else ""
        for field in missing:
            hint = None if field == "name" else "give it here or under `defaults`"
            self.validator.note(f"missing field `{field}`{table}", path, hint=hint)

    def _note_no_tables(self, data: Mapping[str, Any]) -> None:
        rows = data.get("tables")
        hint = "tables: [{name: ..., num_embeddings: ..., embedding_dim: ...}]"
        if "tables" not in data:
            self.validator.note("missing field `tables`", self.path, hint=hint)
        elif rows is None or rows == []:
            self.validator.note("`tables` is empty", (*self.path, "tables"), hint=hint)
        else:
            self.validator.note("`tables` must be a list", (*self.path, "tables"), hint=hint)

    def _note_twice(self, rows: Sequence[Any]) -> bool:
        """Note names that more than one table has, and return whether there are none."""
        first: dict[str, int] = {}
        unique = True
        for number, row in enumerate(rows):
            name = row.get("name") if isinstance(row, dict) else None
            if not isinstance(name, str) or self.validator.full:
                continue
            path = (*self.path, "tables", number, "name")
            if name in first:
                before = self.validator.document.problem(
                    "", (*self.path, "tables", first[name], "name")
                )
                hint = f"first on line {before.line}; names must be unique"
                self.validator.note(f"table `{name}` twice", path, hint=hint)
                unique = False
            first.setdefault(name, number)
        return unique


def _likely(field: str, value: Any, values: Mapping[str, Any], refusal: str) -> str | None:  # noqa: ANN401
    """Return what a refused value was probably meant to be, as a hint."""
    if "multiple of 4" in refusal:
        return _next_multiple(value)
    if "at most" not in refusal:
        return None
    rows = values.get("num_embeddings")
    if field == "embedding_dim" and isinstance(rows, int) and rows < value:
        return f"embedding_dim {shown(value)} and num_embeddings {shown(rows)}: swapped?"
    return _MEANT.get(field)


def _next_multiple(value: object) -> str | None:
    """Return the hint of the nearest multiples of four; None: not a whole number."""
    if not isinstance(value, int):
        return None
    above = max(4, -(-value // 4) * 4)
    return f"write {above - 4} or {above}" if above > 4 else f"write {above}"
