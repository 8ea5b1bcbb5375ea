"""Shared stages: the condition under which a kernel runs in the stage of another kernel whose rows it reads.

The rows of a kernel in bucket b must reach the reader in bucket b, and the worker must be able to compute the steps between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamq.compiler.rules.totality import can_fail
from streamq.compiler.staged_plan import Path, PortInput, Relation
from streamq.operators.table_steps import columns_step
from streamq.plan.node import expressions
from streamq.plan.own_names import shown_name
from streamq.plan.tree import show
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.event import LE
from streamq.runtime.hosts.hosted_kernel import InnerPath


@dataclass(frozen=True)
class Sharing:
    """The answer if a reader may run in the stage of a kernel: ``inner`` is the path between them, or ``reason`` says why not."""

    inner: InnerPath | None = None
    reason: str = ""


NO_KEY = "no key"
"""The text for rows that are all in one bucket."""

APART = Sharing()
"""The answer for a path from a source, and for a reader that has a stage of its own anyway."""


def share(
    path: Path,
    port: PortInput,
    relation: Relation,
    bucket_columns: tuple[str, ...] | None,
    *,
    hears_endpoints: bool,
    ansi: bool,
) -> Sharing:
    """Return the answer for a path from a kernel's ``relation`` to a port.

    ``bucket_columns``: the relation's columns that choose a row's bucket, None if no columns do. ``hears_endpoints``: each
    bucket of the port's kernel hears the endpoints of all its input. ``ansi``: Spark computes by its ANSI rules, as Arrow does.

    They share a stage if the port's rows are hashed by the relation's columns, in the same order and as they are, and every step
    is computed in Arrow exactly as by Spark; without ANSI rules these are the steps that fail on no row.
    """
    if hears_endpoints:
        return Sharing(reason="each bucket hears the endpoints in all others")
    if bucket_columns is None:
        return Sharing(reason="the rows there are not spread by groups")
    if _hashed_columns(path, port) != bucket_columns:
        there = ", ".join(map(shown_name, bucket_columns)) or NO_KEY
        return Sharing(reason=f"rows are spread by {_hashed_text(port)} here, by {there} there")
    steps = []
    for step in path.steps:
        if (table_step := step.table_step) is None:
            return Sharing(reason=f"Spark computes {step.line}")
        if not ansi and any(can_fail(expr, step.input.schema) for expr in expressions(step)):
            return Sharing(reason=f"Spark computes {step.line} without ANSI rules")
        steps.append(table_step)
    columns = columns_step(port.columns.columns, path.schema)
    if columns is None:
        return Sharing(reason="Spark computes the arguments")
    if not ansi and any(can_fail(expr, path.schema) for _, expr in port.columns.columns):
        return Sharing(reason="Spark computes the arguments without ANSI rules")
    payload = pa.schema([(field.name, arrow_type(field.type)) for field in relation.schema.fields])
    names = tuple(name for name, _ in port.columns.columns)
    return Sharing(InnerPath(payload, (*steps, columns), (*names, *port.lifetimes), port.columns.hashed))


def _hashed_text(port: PortInput) -> str:
    """Return the hashed columns of a port as text."""
    exprs = dict(port.columns.columns)
    return ", ".join("start" if name == LE else show(exprs[name]) for name in port.columns.hashed) or NO_KEY


def _hashed_columns(path: Path, port: PortInput) -> tuple[str, ...] | None:
    """Return the columns of a path's relation that the port's hashed columns copy, in their order; None if one is computed."""
    exprs = dict(port.columns.columns)
    copied = []
    for hashed in port.columns.hashed:
        name = exprs[hashed].copied_column if hashed in exprs else None
        for step in reversed(path.steps):
            name = None if name is None else step.copied_column(name)
        if name is None:
            return None
        copied.append(name)
    return tuple(copied)
