"""Checks of the arguments of Dagster definitions, made before anything is sent.

Import Dagster late here: workers check their options with this module and leave Dagster to their fork servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.base import suggestion

if TYPE_CHECKING:
    import dagster as dg

__all__ = [
    "check_asset",
    "check_flow_name",
    "check_function",
    "check_items",
    "check_mapping",
    "check_number",
    "check_target",
    "check_text",
    "check_word",
    "check_words",
    "checked",
]

T = TypeVar("T")


def _refuse(value: object, name: str, expected: str, advice: str = "") -> InvalidOptionError:
    return InvalidOptionError(f"`{name}` must be {expected}, got {value!r}; {advice or f'pass `{name}=...`'}.")


def checked(value: T, kind: type[Any], name: str, *, optional: bool = True) -> T:
    """Return the value if it has the given type, or is None and optional.

    Raises:
        InvalidOptionError: The value has another type.
    """
    if isinstance(value, kind) or (optional and value is None):
        return value
    words = "a string" if kind is str else "a dict" if kind is Mapping else f"of type {kind.__name__}"
    raise _refuse(value, name, words)


def check_text(value: str, name: str) -> str:
    """Return the value if it is a non-empty string.

    Raises:
        InvalidOptionError: The value is empty or not a string.
    """
    if not isinstance(value, str) or not value:
        raise _refuse(value, name, "a non-empty string")
    return value


def check_flow_name(value: str | None, name: str = "flow") -> str | None:
    """Return the name of a flow's graph; None for any flow.

    Raises:
        InvalidOptionError: No flow can have this name.
    """
    if value is None:
        return None
    if ":" in check_text(value, name):
        raise _refuse(value, name, "the name of a flow, which has no ':'")
    return value


def check_number(value: int, name: str, least: int | None = None) -> int:
    """Return the value if it is an integer of at least ``least``.

    Raises:
        InvalidOptionError: The value is too small or not an integer.
    """
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        raise _refuse(value, name, "a whole number" + ("" if least is None else f" >= {least}"))
    return value


def check_function(value: T, name: str) -> T:
    """Return the value if it is callable or None.

    Raises:
        InvalidOptionError: The value cannot be called.
    """
    if value is not None and not callable(value):
        raise _refuse(value, name, "a function")
    return value


def check_target(value: T, name: str = "job", *, optional: bool = False) -> T:
    """Return the target of a sensor's runs.

    Raises:
        InvalidOptionError: The value is neither a job nor an asset selection.
    """
    import dagster as dg

    from orchestration_queue.dagster._compat import UnresolvedAssetJobDefinition

    targets = (dg.JobDefinition, UnresolvedAssetJobDefinition, dg.AssetSelection)
    if isinstance(value, targets) or (optional and value is None):
        return value
    raise _refuse(value, name, "a job or an asset selection", f"pass `{name}=dg.define_asset_job(...)`, for instance")


def check_items(values: Iterable[T], kind: type[Any] | tuple[type[Any], ...], name: str) -> tuple[T, ...]:
    """Return the values as a tuple if all have one of the given types.

    Raises:
        InvalidOptionError: The values are not a list, or one has another type.
    """
    kinds = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise _refuse(values, name, f"a list of {kinds}", f"pass `{name}=[...]`")
    items = tuple(values)
    for item in items:
        if not isinstance(item, kind):
            raise _refuse(item, f"{name}[{items.index(item)}]", f"of type {kinds}", f"pass `{name}=[...]`")
    return items


def check_words(values: Iterable[str], name: str) -> tuple[str, ...]:
    """Return the values as a tuple if all are non-empty strings.

    Raises:
        InvalidOptionError: The values are not a list, or one is empty or not a string.
    """
    words = check_items(values, str, name)
    for word in words:
        check_text(word, f"{name}[...]")
    return words


def check_word(value: T, name: str, known: Collection[str]) -> T:
    """Return the value if it is one of the known words.

    Raises:
        InvalidOptionError: The word is unknown.
    """
    if value in known:
        return value
    words = ", ".join(sorted(map(str, known)))
    advice = suggestion(value, known).removeprefix("; ").removesuffix(".") or f"pass one of {words}"
    raise _refuse(value, name, "a known word", advice)


def check_mapping(value: T | None, name: str) -> T | None:
    """Return the value if it is a dict with string keys, or None.

    Raises:
        InvalidOptionError: The value is not a dict, or a key is not a string.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _refuse(value, name, "a dict", f"pass `{name}={{'name': ...}}`")
    for key in value:
        if not isinstance(key, str):
            raise _refuse(key, name, "a dict whose keys are names", f"pass `{name}={{'name': ...}}`")
    return value


def check_asset(asset: dg.AssetKey | str, name: str = "asset") -> dg.AssetKey:
    """Return the asset key of a name such as ``part/part``.

    Raises:
        InvalidOptionError: The value is neither a key nor a name.
    """
    import dagster as dg

    if isinstance(asset, dg.AssetKey):
        return asset
    if not isinstance(asset, str) or not all(asset.split("/")):
        raise _refuse(asset, name, "an asset's key, or its name as 'part/part'", f"pass `{name}='part/part'`")
    return dg.AssetKey.from_user_string(asset)
