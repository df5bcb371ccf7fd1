"""Makes the reference of a file format from its JSON Schema."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

import griffe

from planner.files.schemas import SCHEMAS, schema

Part: TypeAlias = Mapping[str, Any]
"""A JSON Schema, or a part of one."""

HEADS = {
    "workload": "Tables, dense model and training loop, as YAML or JSON: what `plan` reads.",
    "plan": """What `planner plan` writes, as JSON. These fields are read back; a report's others
(`step_time_interval_s`, `ranks`, `breakdown`, ...) stand beside them and are ignored. The workload
that the plan is for is inside, so that the file stands alone.""",
    "dense": """What `planner trace-model -o FILE` writes, as JSON: the operators of a model's dense
part in a step, with sizes that hold for any batch. No torch is needed to read it.""",
    "profile": """A kind of machine, as YAML: what `--hardware` takes, `planner calibrate`
writes and `planner profiles show` prints. A number may stand alone, or with who says so:
`{value: 3000 GB/s, source: "datasheet"}`.""",
}
_UNIT = re.compile(r"\(([^()]*)\)\$$")
"""The units at the end of the pattern of a quantity."""
_CLASS = re.compile(r"``(\w+)``")


def page(kind: str) -> str:
    """Return the page of one of ``SCHEMAS``."""
    return _Page(kind).text()


class _Page:
    """One format's page; what another page describes is linked there."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._whole: Part = schema(kind)
        self._parts: Mapping[str, Part] = self._whole.get("$defs", {})
        self._elsewhere: Mapping[str, str] = {}
        if kind != "workload":
            names = schema("workload")["$defs"]
            self._elsewhere = {name: f"workload.md#{name.lower()}" for name in names}
            self._elsewhere["WorkloadFile"] = "workload.md"

    def text(self) -> str:
        """Return the page."""
        texts = [
            f"# {SCHEMAS[self._kind].title}",
            HEADS[self._kind],
            f"`planner schema {self._kind}` prints this as JSON Schema, for editors.",
            *self._section(self._whole),
        ]
        for name, part in sorted(self._parts.items()):
            if name in self._elsewhere:
                continue
            if "properties" in part:
                texts += [f"## {name}", *self._section(part)]
            elif "enum" in part:
                values = ", ".join(f"`{value}`" for value in part["enum"])
                texts += [f"## {name}", _text(part), f"One of {values}."]
        return "\n\n".join(text for text in texts if text) + "\n"

    def _section(self, part: Part) -> Iterator[str]:
        """Yield the description of an object and the table of its fields."""
        yield _text(part)
        required = part.get("required", ())
        lines = ["| field | type | default | |", "|---|---|---|---|"]
        for name, field in part["properties"].items():
            default = "required" if name in required else _default(field)
            about = _text(field) or _of_domain(part, name)
            cells = (f"`{name}`", self._type(field), default, " ".join(about.split()))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        yield "\n".join(lines)

    def _type(self, field: Part) -> str:
        """Return a type in words; objects link to their section."""
        name = field.get("$ref", "").rpartition("/")[2]
        if name:
            part = self._parts[name]
            if "properties" not in part and "enum" not in part:
                return self._type(part)
            return f"[{name}]({self._elsewhere.get(name, f'#{name.lower()}')})"
        choices = field.get("anyOf", field.get("allOf"))
        if choices:
            types = dict.fromkeys(self._type(choice) for choice in choices)
            return " or ".join(each for each in types if each)
        if "const" in field or "enum" in field:
            return " or ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
        return self._plain_type(field)

    def _plain_type(self, field: Part) -> str:
        """Return the type of what is neither a reference nor a choice; nothing for null."""
        match field.get("type", "any"):
            case "array":
                return f"list of {self._type(field.get('items', {}))}"
            case "object":
                values = field.get("additionalProperties")
                return f"by name: {self._type(values)}" if isinstance(values, dict) else ""
            case "string" if "pattern" in field:
                units = _UNIT.findall(field["pattern"])[0].replace("|", ", ")
                return f"number with {units}" if units else ""
            case "null":
                return ""
            case name:
                return str(name)


def _text(part: Part) -> str:
    """Return a description; a docstring's double backticks become Markdown's."""
    return str(part.get("description", "")).replace("``", "`").strip()


def _default(field: Part) -> str:
    default = field.get("default")
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "" if default is None else f"`{default}`"


def _of_domain(part: Part, name: str) -> str:
    """Return what the class that a section fills says of a field: ``Fields of ``Gpu``.``."""
    classes = _CLASS.findall(str(part.get("description", "")))
    return _documented().get((classes[0], name), "") if classes else ""


@cache
def _documented() -> Mapping[tuple[str, str], str]:
    """Return the docstrings of the attributes of all classes of the cost model."""
    return {
        (found.name, name): attribute.docstring.value.replace("``", "`")
        for found in _classes(griffe.load("costmodel", search_paths=["."]))
        for name, attribute in found.attributes.items()
        if attribute.docstring is not None
    }


def _classes(place: Any) -> Iterator[Any]:  # noqa: ANN401 - griffe's modules
    for found in place.members.values():
        if found.is_alias:
            continue
        if found.is_class:
            yield found
        elif found.is_module:
            yield from _classes(found)
