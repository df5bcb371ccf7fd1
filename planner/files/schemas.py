"""JSON Schemas of the files that the planner reads, made from the models that read them."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc, getsource
from itertools import pairwise
from textwrap import dedent
from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """A kind of file, and the pydantic model that reads it."""

    title: str
    model: str
    """``module:Class``, imported when asked for."""


SCHEMAS: Mapping[str, FileFormat] = {
    "workload": FileFormat(
        title="Workload file", model="planner.files.workload_schema:WorkloadFile"
    ),
    "plan": FileFormat(title="Plan file", model="planner.files.plan_schema:WholePlanFile"),
    "dense": FileFormat(
        title="Dense model's operators", model="planner.files.dense_schema:DenseFile"
    ),
    "profile": FileFormat(
        title="Hardware profile", model="planner.files.profile_schema:ProfileFile"
    ),
}


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind of file."""
    module, _, name = SCHEMAS[kind].model.partition(":")
    model = getattr(import_module(module), name)
    return {"$schema": DRAFT, **model.model_json_schema()}


def attribute_docs(described: type) -> dict[str, str]:
    """Return the docstrings below a class's attributes, by attribute."""
    (written,) = ast.parse(dedent(getsource(described))).body
    docs: dict[str, str] = {}
    for attribute, below in pairwise(written.body) if isinstance(written, ast.ClassDef) else ():
        match attribute, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                docs[name] = cleandoc(text)
    return docs
