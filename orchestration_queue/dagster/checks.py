"""What callers pass to the parts of Dagster's side, checked where it is written and before anything is sent.

Dagster is imported late: workers check their options here and leave Dagster to their fork servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.base import suggestion

if TYPE_CHECKING:
    import dagster as dg

__all__ = [
    "checked",
    "checked_asset",
    "checked_flow_name",
    "checked_function",
    "checked_items",
    "checked_mapping",
    "checked_number",
    "checked_target",
    "checked_text",
    "checked_word",
    "checked_words",
]

T = TypeVar("T")


def _refuse(value: object, name: str, expected: str, advice: str = "") -> InvalidOptionError:
    return InvalidOptionError(f"`{name}` must be {expected}, got {value!r}; {advice or f'pass `{name}=...`'}.")


def checked(value: T, kind: type[Any], name: str, *, optional: bool = True) -> T:
    """Return a value of a kind; None, too, where that is optional.

    Raises:
        InvalidOptionError: It is something else.
    """
    if isinstance(value, kind) or (optional and value is None):
        return value
    words = "a string" if kind is str else "a dict" if kind is Mapping else f"of type {kind.__name__}"
    raise _refuse(value, name, words)


def checked_text(value: str, name: str) -> str:
    """Return a text that is not empty.

    Raises:
        InvalidOptionError: It is empty, or not text.
    """
    if not isinstance(value, str) or not value:
        raise _refuse(value, name, "a non-empty string")
    return value


def checked_flow_name(value: str | None, name: str = "flow") -> str | None:
    """Return the name of a flow's graph; None for any.

    Raises:
        InvalidOptionError: No flow has such a name.
    """
    if value is None:
        return None
    if ":" in checked_text(value, name):
        raise _refuse(value, name, "the name of a flow, which has no ':'")
    return value


def checked_number(value: int, name: str, least: int | None = None) -> int:
    """Return a whole number.

    Raises:
        InvalidOptionError: It is below the least, or not a whole number.
    """
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        raise _refuse(value, name, "a whole number" + ("" if least is None else f" >= {least}"))
    return value


def checked_function(value: T, name: str) -> T:
    """Return a function; None, too.

    Raises:
        InvalidOptionError: It cannot be called.
    """
    if value is not None and not callable(value):
        raise _refuse(value, name, "a function")
    return value


def checked_target(value: T, name: str = "job", *, optional: bool = False) -> T:
    """Return what a sensor's runs execute.

    Raises:
        InvalidOptionError: It is neither a job nor an asset selection.
    """
    import dagster as dg

    from orchestration_queue.dagster._compat import UnresolvedAssetJobDefinition

    targets = (dg.JobDefinition, UnresolvedAssetJobDefinition, dg.AssetSelection)
    if isinstance(value, targets) or (optional and value is None):
        return value
    raise _refuse(value, name, "a job or an asset selection", f"pass `{name}=dg.define_asset_job(...)`, for instance")


def checked_items(values: Iterable[T], kind: type[Any] | tuple[type[Any], ...], name: str) -> tuple[T, ...]:
    """Return several values of a kind, or of some kinds.

    Raises:
        InvalidOptionError: They are not a list, or one of them is something else.
    """
    kinds = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise _refuse(values, name, f"a list of {kinds}", f"pass `{name}=[...]`")
    items = tuple(values)
    for item in items:
        if not isinstance(item, kind):
            raise _refuse(item, f"{name}[{items.index(item)}]", f"of type {kinds}", f"pass `{name}=[...]`")
    return items


def checked_words(values: Iterable[str], name: str) -> tuple[str, ...]:
    """Return several texts.

    Raises:
        InvalidOptionError: They are not a list, or one of them is empty or not text.
    """
    words = checked_items(values, str, name)
    for word in words:
        checked_text(word, f"{name}[...]")
    return words


def checked_word(value: T, name: str, known: Collection[str]) -> T:
    """Return one of several known words.

    Raises:
        InvalidOptionError: It is another one.
    """
    if value in known:
        return value
    words = ", ".join(sorted(map(str, known)))
    advice = suggestion(value, known).removeprefix("; ").removesuffix(".") or f"pass one of {words}"
    raise _refuse(value, name, "a known word", advice)


def checked_mapping(value: T | None, name: str) -> T | None:
    """Return values by their names; None, too.

    Raises:
        InvalidOptionError: It is not a dict, or a name is not text.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _refuse(value, name, "a dict", f"pass `{name}={{'name': ...}}`")
    for key in value:
        if not isinstance(key, str):
            raise _refuse(key, name, "a dict whose keys are names", f"pass `{name}={{'name': ...}}`")
    return value


def checked_asset(asset: dg.AssetKey | str, name: str = "asset") -> dg.AssetKey:
    """Return the key of an asset that is named as ``part/part``.

    Raises:
        InvalidOptionError: It is neither a key nor text.
    """
    import dagster as dg

    if isinstance(asset, dg.AssetKey):
        return asset
    if not isinstance(asset, str) or not all(asset.split("/")):
        raise _refuse(asset, name, "an asset's key, or its name as 'part/part'", f"pass `{name}='part/part'`")
    return dg.AssetKey.from_user_string(asset)
