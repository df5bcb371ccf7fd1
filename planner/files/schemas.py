"""JSON Schemas of the files that the planner reads, by kind: made from what reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """A kind of file, and the pydantic model that reads it."""

    title: str
    model: str
    """As ``module:Class``, imported when asked for."""


SCHEMAS: Mapping[str, FileFormat] = {
    "workload": FileFormat(
        title="Workload file", model="planner.files.workload_schema:WorkloadFile"
    ),
    "plan": FileFormat(title="Plan file", model="planner.files.plan_schema:WholePlanFile"),
    "profile": FileFormat(
        title="Hardware profile", model="planner.files.profile_schema:ProfileFile"
    ),
}


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind of file."""
    module, _, name = SCHEMAS[kind].model.partition(":")
    model = getattr(import_module(module), name)
    return {"$schema": DRAFT, **model.model_json_schema()}
