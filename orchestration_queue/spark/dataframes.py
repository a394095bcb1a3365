"""How DataFrames are passed between jobs: references to stored DataFrames, and functions' parameters that take them.

Jobs exchange the location of the rows through the queue, not the rows. Annotations are compared as text, because
PySpark may be imported for type checkers only. Nothing here imports PySpark before there is a session.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from pydantic import NonNegativeInt

from orchestration_queue.errors import UsageError
from orchestration_queue.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "DataFrameRef",
    "FrameShape",
    "dataframe_parameters",
    "frame_shape",
    "mentions_dataframe",
    "mentions_row",
    "references_in",
    "replace_each",
    "returned_shape",
    "segment",
]


class DataFrameRef(Options):
    """A reference to a stored DataFrame, which a job returns in its place."""

    kind: Literal["dataframe"] = "dataframe"
    """Marks JSON as a reference."""
    format: Literal["parquet", "orc", "delta", "table"] = "parquet"
    """How to read it."""
    location: str
    """The directory or URI of the files, or the table's name."""
    columns: dict[str, str]
    """Each column's type, as Spark's short name, in order."""
    rows: NonNegativeInt
    """The number of rows."""
    bytes: NonNegativeInt | None = None
    """The size of the files; None for a table."""
    inputs: tuple[str, ...] = ()
    """Its sources: directories of files, and locations of other references; at most 100."""

    def load(self, spark: SparkSession) -> DataFrame:
        """Load the DataFrame in a session."""
        return (
            spark.table(self.location) if self.format == "table" else spark.read.format(self.format).load(self.location)
        )

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Self:
        """Return a reference from its JSON, as in a job's result.

        Raises:
            InvalidOptionError: It is not the JSON of a reference.
        """
        return cls.coerce(obj, "reference")

    @classmethod
    def of_table(cls, spark: SparkSession, name: str) -> DataFrameRef:
        """Return a reference to an existing table, for a task that wrote it itself."""
        table = spark.table(name)
        return cls(format="table", location=name, columns=dict(table.dtypes), rows=table.count())


def references_in(value: object) -> list[DataFrameRef]:
    """Return the references in a value: itself, or those in its containers."""
    found: list[DataFrameRef] = []
    replace_each(value, DataFrameRef, lambda _, ref: found.append(ref))
    return found


def replace_each(value: Any, kind: Any, replace: Callable[[str, Any], Any], path: str = "") -> Any:
    """Return a value with all of a type replaced, in lists, tuples and dicts; ``replace`` receives the path of each."""
    if isinstance(value, kind):
        return replace(path, value)
    if isinstance(value, dict):
        return {key: replace_each(item, kind, replace, _below(path, str(key))) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(replace_each(item, kind, replace, _below(path, str(at))) for at, item in enumerate(value))
    return value


def _below(path: str, name: str) -> str:
    return f"{path}/{segment(name)}" if path else segment(name)


def segment(name: str) -> str:
    """Return a name encoded as one segment of a path."""
    return "%2E" * len(name) if set(name) == {"."} else quote(name, safe="")


_SPARK = "pyspark.sql."
_LISTS = frozenset({"list", "List", "Sequence"})
_DICTS = frozenset({"dict", "Dict", "Mapping"})
_TUPLES = frozenset({"tuple", "Tuple"})


@dataclass(frozen=True, slots=True)
class FrameShape:
    """One DataFrame, or several in a container.

    Attributes:
        kind: The container; ``one`` without a container.
        optional: Whether None is accepted.
        size: The length of a tuple of fixed length; None for any length.
    """

    kind: Literal["one", "list", "tuple", "dict"]
    optional: bool = False
    size: int | None = None

    def annotate(self, item: Any) -> Any:
        """Return the annotation with ``item`` in place of DataFrame."""
        items = (item, ...) if self.size is None else (item,) * self.size
        containers: dict[str, tuple[type, Any]] = {
            "list": (list, item),
            "tuple": (tuple, items),
            "dict": (dict, (str, item)),
        }
        shape = item if self.kind == "one" else GenericAlias(*containers[self.kind])
        return shape | None if self.optional else shape


def dataframe_parameters(function: Callable[..., Any]) -> dict[str, FrameShape]:
    """Return the parameters of a function ``f(spark, ...)`` that take DataFrames.

    Raises:
        UsageError: A parameter's annotation has DataFrames where none can be passed.
    """
    found = {}
    for name in list(inspect.signature(function).parameters)[1:]:
        hint = function.__annotations__.get(name)
        if shape := frame_shape(hint):
            found[name] = shape
        elif mentions_dataframe(hint):
            raise UsageError(
                f"Parameter {name!r} of {function.__qualname__} is annotated {_text(hint)}, but DataFrames are passed "
                "alone or in one container; use DataFrame, list[DataFrame], tuple[DataFrame, ...] or "
                "dict[str, DataFrame], each with or without `| None`."
            )
    return found


def returned_shape(function: Callable[..., Any]) -> FrameShape | None:
    """Return the shape of the DataFrames that a function is annotated to return; None when it is another type."""
    return frame_shape(function.__annotations__.get("return"))


def mentions_dataframe(hint: object) -> bool:
    """Return whether a Spark DataFrame is anywhere in an annotation."""
    return _mentions(hint, "DataFrame")


def mentions_row(hint: object) -> bool:
    """Return whether a Spark Row is anywhere in an annotation."""
    return _mentions(hint, "Row")


def _mentions(hint: object, name: str) -> bool:
    tree = _parse(hint)
    return tree is not None and any(_is_sparks(node, name) for node in ast.walk(tree))


def frame_shape(hint: object) -> FrameShape | None:
    """Return the shape that an annotation describes; None when it has no DataFrames."""
    tree = _parse(hint)
    return None if tree is None else _shape(tree)


def _parse(hint: object) -> ast.expr | None:
    if hint is None:
        return None
    try:
        return ast.parse(_text(hint), mode="eval").body
    except SyntaxError:  # the text of an object that is not a type
        return None


def _text(hint: object) -> str:
    return hint if isinstance(hint, str) else inspect.formatannotation(hint)


def _shape(node: ast.expr) -> FrameShape | None:
    match node:
        case ast.Constant(value=str(text)):  # a quoted name
            return frame_shape(text)
        case ast.BinOp(left=one, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _optional(one)
        case ast.BinOp(left=ast.Constant(value=None), op=ast.BitOr(), right=one):
            return _optional(one)
        case ast.Subscript(value=container, slice=inner):
            return _container_shape(ast.unparse(container).rpartition(".")[2], inner)
    return FrameShape("one") if _is_dataframe(node) else None


def _container_shape(name: str, inner: ast.expr) -> FrameShape | None:
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Optional":
        return _optional(inner)
    if name in _LISTS and _is_dataframe(inner):
        return FrameShape("list")
    if name in _DICTS and len(items) == 2 and ast.unparse(items[0]) == "str" and _is_dataframe(items[1]):
        return FrameShape("dict")
    if name in _TUPLES and _is_dataframe(items[0]):
        if len(items) == 2 and ast.unparse(items[1]) in ("...", "Ellipsis"):
            return FrameShape("tuple")
        return FrameShape("tuple", size=len(items)) if all(map(_is_dataframe, items)) else None
    return None


def _optional(node: ast.expr) -> FrameShape | None:
    shape = _shape(node)
    return FrameShape(shape.kind, True, shape.size) if shape else None


def _is_dataframe(node: ast.AST) -> bool:
    return _is_sparks(node, "DataFrame")


def _is_sparks(node: ast.AST, name: str) -> bool:
    """Return whether a part of an annotation is a class of PySpark, imported or written as text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.strip() in (name, f"sql.{name}")
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    text = ast.unparse(node)
    return text in (name, f"sql.{name}") or (text.startswith(_SPARK) and text.endswith(f".{name}"))
