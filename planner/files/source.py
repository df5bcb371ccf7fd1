"""YAML (and so JSON) text to plain data that remembers where everything was written.

PyYAML's ``compose`` gives a tree of nodes with positions; the data is built from that tree here,
so that duplicate keys are seen, and a problem found later in the data can still be pointed at.
"""

import json
import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from costmodel.base.errors import InputError, Problem
from costmodel.base.limits import shown
from planner.files.json_text import MOST_DIGITS, load_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    import yaml

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and list indices that lead from the top of a document to a value."""

MAX_DEPTH = 50
"""Deepest nesting of lists and mappings; our files need six."""

MOST_PROBLEMS = 100
"""Most problems of one file that are noted; fewer are shown."""

_YAML_TAG = "tag:yaml.org,2002:"
_SCALARS = {"null", "bool", "int", "float"}
_NUMBERS = {"int": int, "float": float}
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+][0-9]+)?")
"""A number that YAML and Python read alike: no octal, no base 60, no underscores.

With an exponent it needs no point, as in JSON and YAML 1.2, but a sign, which all programs write:
names such as ``1e5`` are text, as in YAML 1.1."""
_JSON_START = re.compile(r"\s*[\[{]\s*[\[{\"]")
_QUOTES = {'"', "'", "#"}
_INT, _FLOAT = _YAML_TAG + "int", _YAML_TAG + "float"
_TEXT_TAGS = {_YAML_TAG + name for name in ("str", "timestamp", "value")}


@dataclass(frozen=True)
class Document:
    """A parsed file: its data, and the position of each value in the text."""

    source: str
    """The file's name, for messages."""
    text: str
    data: Any
    """Mappings, lists and scalars."""

    @cached_property
    def _root(self) -> "yaml.Node | None":
        try:
            return _compose(self.text, self.source)
        except InputError:  # JSON that is no YAML: its problems go without positions
            return None

    def problem(
        self, message: str, path: KeyPath, *, at_key: bool = False, hint: str | None = None
    ) -> Problem:
        """Return a problem that points at a value, or at its key.

        A path into nothing points at the deepest value on the way that does exist.
        """
        node = _find(self._root, path, at_key=at_key)
        if node is None:
            return Problem(message=message, hint=hint)
        return _problem_at(node, self._lines, message, hint)

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()

    def raw(self, path: KeyPath) -> str:
        """Return a scalar as it was written; empty for a list, a mapping, or a missing value."""
        node = _find(self._root, path, at_key=False)
        return node.value if node is not None and isinstance(node.value, str) else ""

    def has(self, path: KeyPath) -> bool:
        """Return whether the text has a value at a path."""
        here = self.data
        for part in path:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                return False
        return True


def parse_yaml(text: str, source: str) -> Document:
    """Read a YAML text.

    Raises
    ------
    InputError
        The text is empty, is not YAML (nor JSON, which it begins as), or uses a key twice.

    """
    root = _compose(text, source)
    if root is None:
        raise InputError(source, (Problem(message="the file is empty"),), text)
    reader = _NodeReader(text)
    data = reader.value(root)
    if reader.problems:
        raise InputError(source, tuple(reader.problems), text)
    return Document(source, text, data)


def parse_json(text: str, source: str) -> Document:
    """Read a JSON text: faster than as YAML, for files that programs write.

    Raises
    ------
    InputError
        The text is empty or is not JSON.

    """
    if not text.strip():
        raise InputError(source, (Problem(message="the file is empty"),), text)
    try:
        return Document(source, text, load_json(text))
    except json.JSONDecodeError as error:
        problem = Problem(
            message=f"not JSON: {error.msg[0].lower()}{error.msg[1:]}",
            line=error.lineno,
            column=error.colno,
        )
        raise InputError(source, (problem,), text) from None
    except ValueError as error:
        raise InputError(source, (Problem(message=f"not usable: {error}"),), text) from None


def looks_like_json(text: str) -> bool:
    """Return whether a text begins as non-empty JSON does, whether or not the rest is JSON."""
    return _JSON_START.match(text) is not None


@cache
def yaml_class(name: str) -> Any:  # noqa: ANN401 - a class of PyYAML
    """Return PyYAML's ``SafeLoader`` or ``SafeDumper``, in C if there is one, with our numbers.

    Each spelling is looked up once, and plain numbers are known at sight: PyYAML tries up to five
    regular expressions for every scalar.
    """
    import yaml

    base: Any = getattr(yaml, f"C{name}", getattr(yaml, name))

    class _Class(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as PyYAML's
            super().__init__(*args, **options)
            self._tags: dict[str, str] = {}

        def resolve(self, kind: type, value: str | None, implicit: object) -> str:
            if kind is not yaml.ScalarNode or value is None or implicit != (True, False):
                found: str = super().resolve(kind, value, implicit)
                return found
            tag = self._tags.get(value)
            if tag is None:
                tag = _number_tag(value) or super().resolve(kind, value, implicit)
                self._tags[value] = tag
            return tag

    return _Class


def _number_tag(value: str) -> str | None:
    if not _PLAIN_NUMBER.fullmatch(value):
        return None
    return _INT if value.removeprefix("-").isdigit() else _FLOAT


def _compose(text: str, source: str) -> "yaml.Node | None":
    """Return the root of the tree of YAML nodes; None: the text is empty."""
    import yaml

    loader = yaml_class("SafeLoader")
    try:
        if _may_be_deep(text) and _is_deep(yaml.parse(text, Loader=loader)):
            problem = Problem(message="lists or mappings are nested too deeply")
            raise InputError(source, (problem,), text)
        root: yaml.Node | None = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        if looks_like_json(text):
            parse_json(text, source)  # which says what is wrong with it as such
        raise InputError(source, (_syntax_problem(error, text),), text) from None
    return root


def _may_be_deep(text: str) -> bool:
    """Return whether a text could overflow the stack of PyYAML's recursive ``compose``.

    Many tables in braces, each on a line of its own, are not deep. A closing bracket counts only on
    the line where it was opened, and where no quote or comment can hold it.
    """
    depth = 0
    for line in text.splitlines():
        opened = line.count("[") + line.count("{")
        if opened and not _QUOTES & set(line):
            opened = max(0, opened - line.count("]") - line.count("}"))
        depth += opened + line.count("- - ") + line.count("? ? ")
    return depth > MAX_DEPTH


def _is_deep(events: "Iterable[yaml.Event]") -> bool:
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            return True
    return False


def _syntax_problem(error: "yaml.YAMLError", text: str) -> Problem:
    import yaml

    if not isinstance(error, yaml.MarkedYAMLError):
        reason = getattr(error, "reason", None) or str(error).splitlines()[0]
        return Problem(message=f"not YAML: {reason}")
    message = f"not YAML: {error.problem or error.context}"
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Problem(message=message)
    lines = text.splitlines()
    if mark.line >= len(lines):
        return _at_the_end(error, message, lines)
    at_tab = _line(lines, mark.line)[mark.column : mark.column + 1] == "\t"
    hint = "indent with spaces; YAML allows no tabs" if at_tab else None
    return Problem(message=message, line=mark.line + 1, column=mark.column + 1, hint=hint)


def _at_the_end(error: "yaml.MarkedYAMLError", message: str, lines: list[str]) -> Problem:
    """Return a problem found after the last line; it points behind the last word."""
    number = max((index for index, line in enumerate(lines, 1) if line.strip()), default=1)
    column = len(_line(lines, number - 1).rstrip()) + 1
    is_open = any(word in (error.context or "") for word in ("flow", "quoted"))
    hint = "the file ends before a bracket or a quote is closed" if is_open else None
    return Problem(message=message, line=number, column=column, hint=hint)


class _NodeReader:
    """Builds plain data from nodes, and collects the problems of nodes that it cannot read."""

    def __init__(self, text: str) -> None:
        import yaml

        self.lines = text.splitlines()
        self.problems: list[Problem] = []
        self._constructor = yaml.SafeLoader("")
        self._scalars, self._mappings = yaml.ScalarNode, yaml.MappingNode
        self._known: dict[tuple[str, str], Any] = {}
        """Scalars by tag and spelling."""
        self._open: set[int] = set()
        self._built: dict[int, Any] = {}
        """Data of nodes with an anchor, which aliases share."""

    def value(self, node: "yaml.Node") -> Any:  # noqa: ANN401 - plain YAML data
        """Return a node as plain data; what is wrong with it is noted."""
        if isinstance(node, self._scalars):
            spelled = node.tag, node.value
            if spelled not in self._known:
                noted = len(self.problems)
                value = self._scalar(node)
                if len(self.problems) > noted:  # each is told of
                    return value
                self._known[spelled] = value
            return self._known[spelled]
        if id(node) in self._open:
            return self._refuse(node, "an alias must not contain itself")
        if len(self._open) == MAX_DEPTH:
            return self._refuse(node, "nested too deeply")
        if id(node) not in self._built:
            self._open.add(id(node))
            self._built[id(node)] = (
                self._mapping(node)
                if isinstance(node, self._mappings)
                else [self.value(item) for item in node.value]
            )
            self._open.discard(id(node))
        return self._built[id(node)]

    def _mapping(self, node: "yaml.MappingNode") -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        name, end = "", node
        for key, value in node.value:
            if name and _is_rest(end, key, value):
                data[name], end = f"{data[name]},{key.value}", key
            elif not isinstance(key, self._scalars):
                self._refuse(key, "a key must be text")
            elif key.tag == _YAML_TAG + "merge":
                self._refuse(key, "merge keys are not supported", "use `defaults` for all tables")
            elif key.value in data:
                self._refuse(
                    key, f"key `{key.value}` twice", f"first on line {lines[key.value]}; keep one"
                )
            else:
                lines[key.value] = key.start_mark.line + 1
                data[key.value] = self.value(value)
                name, end = key.value, value
        return data

    def _scalar(self, node: "yaml.ScalarNode") -> Any:  # noqa: ANN401 - plain YAML data
        import yaml

        if node.tag in _TEXT_TAGS:
            return node.value
        if not node.tag.startswith(_YAML_TAG):
            return self._refuse(node, f"tag `{node.tag}` is not supported")
        kind = node.tag.removeprefix(_YAML_TAG)
        if kind not in _SCALARS:
            return self._refuse(node, "this tag is not supported")
        try:
            if kind in _NUMBERS and _PLAIN_NUMBER.fullmatch(node.value):
                value = _NUMBERS[kind](node.value)  # six times as fast as PyYAML's
            else:
                value = getattr(self._constructor, f"construct_yaml_{kind}")(node)
        except (ValueError, KeyError, IndexError, OverflowError, yaml.YAMLError):
            return self._refuse(node, f"cannot read `{node.value[:40]}` as a number")
        if kind in _NUMBERS and ":" in node.value:
            hint = f"YAML reads it in base 60, as {value}; write one number, or quote it"
            self._refuse(node, f"`{node.value[:40]}` is not a number", hint)
        if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
            return self._refuse(node, f"{shown(value)} is too large a number")
        return value

    def _refuse(self, node: "yaml.Node", message: str, hint: str | None = None) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(_problem_at(node, self.lines, message, hint))


def _is_rest(number: "yaml.Node", key: "yaml.Node", value: "yaml.Node") -> bool:
    """Return whether a key is the end of a number cut by a comma in braces: ``{rows: 1,000}``."""
    if value.value or key.start_mark.index != number.end_mark.index + 1:
        return False
    texts = number.value, key.value
    return all(isinstance(text, str) and text.isdigit() for text in texts) and len(key.value) == 3


def _find(root: "yaml.Node | None", path: KeyPath, *, at_key: bool) -> "yaml.Node | None":
    """Return the node at a path, or the last one on the way that there is."""
    import yaml

    node = root
    for depth, part in enumerate(path):
        last = depth == len(path) - 1
        step: yaml.Node | None = None
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            step = node.value[part] if part < len(node.value) else None
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == part:
                    step = key if last and at_key else value
                    break
        if step is None:
            return node
        node = step
    return node


def _problem_at(node: "yaml.Node", lines: list[str], message: str, hint: str | None) -> Problem:
    """Return a problem that points at a node's part of its first line."""
    start, end = node.start_mark, node.end_mark
    stop = end.column if end.line == start.line else len(_line(lines, start.line).rstrip())
    return Problem(
        message=message,
        line=start.line + 1,
        column=start.column + 1,
        width=max(1, stop - start.column),
        hint=hint,
    )


def _line(lines: list[str], number: int) -> str:
    return lines[number] if number < len(lines) else ""
