"""Encode payloads as text and decode them: as JSON by default, or with another codec. No codec runs code.

The beginning of a text identifies the codec that wrote it: no prefix for JSON, otherwise one such as ``gz:``. So
readers need no setting, and jobs of all codecs can be mixed in one queue.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import SchemaSerializer, from_json, to_json
from pydantic_core.core_schema import any_schema

from orchestration_queue._extras import named_extra
from orchestration_queue.errors import PayloadError, UsageError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = [
    "JSON",
    "MAX_PAYLOAD_BYTES",
    "Codec",
    "decode",
    "dump_json",
    "encode",
    "find_codec",
    "is_coded",
    "plain",
    "plain_number",
    "refuse_changes",
    "refuse_equal_keys",
    "register_codec",
]

MAX_PAYLOAD_BYTES = 1_048_576
"""Maximum bytes of encoded data, before compression."""

_LONGEST_PREFIX = 16
_PREFIX = re.compile(rf"[a-z][a-z0-9]{{0,{_LONGEST_PREFIX - 2}}}:")
"""No JSON text begins like this, so a prefix can't be mistaken for one."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A way to write payloads as text.

    Attributes:
        name: Its name, by which queues choose it.
        prefix: The beginning of its texts: lowercase letters and digits, then a colon.
        encode: From a value to text, without the prefix. It raises ValueError or TypeError for values it can't
            represent.
        decode: From text to a value. It raises ValueError for invalid text. Texts can come from any client: it must not
            run code, and must limit what it unpacks.
    """

    name: str
    prefix: str
    encode: Callable[[Any], str]
    decode: Callable[[str], Any]


class _TooLargeError(ValueError):
    def __init__(self, size: int) -> None:
        self.size = size


_NUMBERS: dict[str, Callable[[Any], object]] = {"b": bool, "i": int, "u": int, "f": float}
"""By numpy's kind of number."""


def plain(value: object) -> Any:
    """Return a value as JSON types, as pydantic writes it; numbers of numpy become numbers.

    Raises:
        ValueError: Its type has no JSON form, it contains bytes that are not UTF-8, keys of a dict become equal or are
            tuples, or a number is not finite.
    """
    text = to_json(value, by_alias=True, fallback=plain_number)
    read = from_json(text)
    refuse_changes(text, read, lambda: _ANYTHING.to_python(value, by_alias=True, fallback=plain_number))
    return read


_ANYTHING = SchemaSerializer(any_schema())
_MAY_CHANGE = re.compile(rb'"[^"]*,[^"]*":|null')
"""What pydantic writes for a key that is a tuple, and for a number that is not finite. Most JSON has neither."""


def refuse_changes(text: bytes, read: object, dump: Callable[[], object]) -> None:
    """Refuse JSON that pydantic wrote although it loses a part of the value.

    Args:
        text: The JSON.
        read: What is read from it.
        dump: Return the value as pydantic serializes it to Python.

    Raises:
        ValueError: Keys of an object are equal, or were tuples, or null was a number that is not finite.
    """
    if isinstance(read, dict | list) and to_json(read) != text:
        json.loads(text, object_pairs_hook=_refuse_equal_keys_of)
    if _MAY_CHANGE.search(text):
        _refuse_changed(dump(), read)


def _refuse_changed(given: object, written: object) -> None:
    if isinstance(given, dict) and isinstance(written, dict):
        _refuse_tuple_keys(given)
        pairs: Iterable[tuple[object, object]] = zip(given.values(), written.values(), strict=False)
    elif isinstance(given, list | tuple) and isinstance(written, list):
        pairs = zip(given, written, strict=False)
    elif isinstance(given, float) and written is None:
        raise ValueError(f"{given} is not a finite number")
    else:
        return
    for part, its_form in pairs:
        _refuse_changed(part, its_form)


def plain_number(value: Any) -> object:
    """Return a number of numpy as Python's, for pydantic, which does not know them.

    Raises:
        ValueError: It is something else.
    """
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind and kind in _NUMBERS and value.ndim == 0:
        return _NUMBERS[kind](value)
    raise ValueError(f"type {type(value).__name__} has no JSON form{_advise_on(type(value))}")


_WAYS = {
    "numpy.ndarray": ".tolist()",
    "pandas.DataFrame": ".to_dict('records')",
    "pandas.Series": ".tolist()",
    "polars.DataFrame": ".to_dicts()",
    "polars.Series": ".to_list()",
    "pyarrow.Table": ".to_pylist()",
}
"""By type, its method that returns JSON types."""


def _advise_on(kind: type) -> str:
    name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    if name == "pyspark.DataFrame":
        return ", but a Spark task stores a DataFrame that it returns"
    return f", but what its {_WAYS[name]} returns has one" if name in _WAYS else ""


_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=plain).encode
"""Created once: :func:`json.dumps` creates an encoder per call if it gets any options."""


def dump_json(value: object) -> str:
    """Return compact JSON of anything that pydantic can write as JSON."""
    try:
        text = _encode_json(value)
    except TypeError:  # for instance a key that is a date: `default` is not called for keys
        _refuse_tuple_keys(value)
        return _encode_json(plain(value))
    if _OTHER_KEY.search(text):
        refuse_equal_keys(text)
    return text


_OTHER_KEY = re.compile(r'":(?:(?<=[0-9]":)|(?<=true":)|(?<=null":)|(?<=false":))')
"""The end of what may have been a key that is not text. Reading the text takes ten times as long as this search."""


_CONSTANTS = {True: "true", False: "false", None: "null"}


def refuse_equal_keys(text: str) -> None:
    """Raise ValueError for JSON in which keys of an object are equal, as those of ``{1: "a", "1": "b"}`` become."""
    if _OTHER_KEY.search(text):
        json.loads(text, object_pairs_hook=_refuse_equal_keys_of)


def _refuse_equal_keys_of(pairs: list[tuple[Any, Any]]) -> None:
    """Check an object: also of MessagePack, whose keys can have other types."""
    keys = [_CONSTANTS[key] if key is None or isinstance(key, bool) else str(key) for key, _ in pairs]
    if len(set(keys)) < len(keys):
        key = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise ValueError(f"two keys of a dict become {key!r}, so that one of their values would be lost")


def _refuse_equal_keys_in(value: object) -> None:
    """Raise ValueError for keys of a dict that JSON, which other clients and the console show, has once."""
    if isinstance(value, dict):
        _refuse_equal_keys_of(list(value.items()))
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            _refuse_equal_keys_in(inner)


def _refuse_tuple_keys(value: object) -> None:
    """Raise ValueError for a key that would come back as another: pydantic joins the parts of a tuple with commas."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(key, tuple):
                raise ValueError(f"the key {key!r} is a tuple, which would be read back as something else")
            _refuse_tuple_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_tuple_keys(inner)


def _check_size(packed: bytes) -> bytes:
    if len(packed) > MAX_PAYLOAD_BYTES:
        raise _TooLargeError(len(packed))
    return packed


def _to_json(value: object) -> str:
    encoded = dump_json(value)
    size = len(encoded.encode())  # also refuses a lone surrogate, which is text in Python only
    if size > MAX_PAYLOAD_BYTES:
        raise _TooLargeError(size)
    return encoded


def _to_gzip(value: object) -> str:
    # Without the time of day, equal data have equal texts.
    packed = gzip.compress(_check_size(dump_json(value).encode()), mtime=0)
    return base64.b64encode(packed).decode("ascii")


def _from_gzip(text: str) -> Any:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    packed = base64.b64decode(text, validate=True)
    # One byte more than allowed shows that it is too large, without unpacking the rest.
    unpacked = unpacker.decompress(packed, MAX_PAYLOAD_BYTES + 1)
    if len(unpacked) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"it unpacks to more than {MAX_PAYLOAD_BYTES:,} bytes")
    return json.loads(unpacked.decode())


def _msgpack() -> ModuleType:
    """Import msgpack when first used: it is an extra."""
    with named_extra():
        import msgpack
    module: ModuleType = msgpack
    return module


def _to_msgpack(value: object) -> str:
    converted: list[None] = []

    def convert(other: object) -> Any:
        converted.append(None)
        return plain(other)

    packed: bytes = _msgpack().packb(value, datetime=True, default=convert)
    try:
        _check_keys(packed, has_text_only=not converted)
    except TypeError:  # a key that Python can't read back
        _refuse_tuple_keys(value)
        raise
    return base64.b64encode(packed).decode("ascii")


def _from_msgpack(text: str) -> Any:
    return _unpack(_check_size(base64.b64decode(text, validate=True)))


def _unpack(packed: bytes) -> Any:
    # The claimed sizes are limited by the text's own length, so that no small text requests much memory.
    return _msgpack().unpackb(packed, timestamp=3, strict_map_key=False, ext_hook=_refuse_kind)


def _check_keys(packed: bytes, *, has_text_only: bool) -> None:
    """Raise ValueError or TypeError for keys that Python can't read back, or that JSON, which others see, has once.

    Args:
        packed: What was packed.
        has_text_only: No key is text that was something else, such as a date.
    """
    try:
        _msgpack().unpackb(packed, timestamp=3, ext_hook=_refuse_kind)  # accepts text and bytes as keys only
        if has_text_only:
            return
    except ValueError:
        _unpack(packed)
    _msgpack().unpackb(
        packed, timestamp=3, strict_map_key=False, ext_hook=_refuse_kind, object_pairs_hook=_refuse_equal_keys_of
    )


def _refuse_kind(code: int, _: bytes) -> object:
    raise ValueError(f"it contains a value of msgpack's extension type {code}, which is unknown here")


JSON = Codec("json", "", _to_json, json.loads)
_GZIP = Codec("gzip", "gz:", _to_gzip, _from_gzip)
_MSGPACK = Codec("msgpack", "mp:", _to_msgpack, _from_msgpack)

_OWN = (JSON, _GZIP, _MSGPACK)
"""Codecs that check what they encode."""
_by_name = {known.name: known for known in _OWN}
_by_prefix = {known.prefix: known for known in (_GZIP, _MSGPACK)}


def register_codec(codec: Codec) -> None:
    """Register a codec in this process: queues can choose it by name, and readers recognize its prefix.

    Producers, workers and waiting clients all need it; others can't read its texts. Registering the same codec twice
    has no effect; another one with the same name or prefix is refused.

    Raises:
        UsageError: The name or the prefix is taken, or the prefix could be mistaken for JSON.
    """
    if not isinstance(codec, Codec):
        raise UsageError(f"A codec must be a Codec, got {codec!r}; pass `Codec(name, prefix, encode, decode)`.")
    if _by_name.get(codec.name) == codec:
        return
    if not codec.name or codec.name in _by_name or codec.prefix in _by_prefix:
        raise UsageError(
            f"A codec {codec.name!r} with the prefix {codec.prefix!r} can't be distinguished from the registered "
            f"ones ({', '.join(_by_name)}); choose another name and prefix."
        )
    if not _PREFIX.fullmatch(codec.prefix):
        raise UsageError(
            f"The codec {codec.name!r} has the prefix {codec.prefix!r}, which could be mistaken for JSON; "
            f"use up to {_LONGEST_PREFIX} characters: lowercase letters and digits, then a colon."
        )
    _by_name[codec.name] = _by_prefix[codec.prefix] = codec


def find_codec(name: str) -> Codec:
    """Return the codec with this name.

    Raises:
        UsageError: It does not exist, or it needs a package that is not installed.
    """
    if (codec := _by_name.get(name)) is None:
        raise UsageError(f"Codec {name!r} is unknown; use one of {', '.join(_by_name)}, or register it first.")
    if codec is _MSGPACK:
        _msgpack()
    return codec


def encode(value: object, what: str = "The job's data", codec: Codec = JSON) -> str:
    """Encode a payload.

    Args:
        value: Anything the codec can represent: for JSON, what pydantic writes as JSON, and numbers of numpy; msgpack
            keeps bytes and datetimes with a time zone as they are, and writes the rest as JSON does.
        what: The payload's name in errors.
        codec: The codec.

    Raises:
        PayloadError: The codec can't represent it, or it is larger than 1 MiB (before compression).
    """
    try:
        if codec not in _OWN:
            _refuse_equal_keys_in(value)
        encoded = codec.prefix + codec.encode(value)
        if codec is not JSON and codec is not _GZIP:  # these have measured their JSON
            _check_size(encoded.encode())
    except _TooLargeError as error:
        raise PayloadError(
            f"{what} exceeds maximum size ({error.size:,} of {MAX_PAYLOAD_BYTES:,} bytes); "
            f"{'a Spark task can return a DataFrame; otherwise ' if what == 'Return value' else ''}"
            "store it elsewhere and pass its path."
        ) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        is_json = codec is JSON or codec is _GZIP
        how = "as JSON" if is_json else f"by the codec {codec.name!r}"
        wanted = "what pydantic writes as JSON, with finite numbers" if is_json else "values that this codec can write"
        raise PayloadError(f"{what} cannot be written {how} ({error}); pass {wanted}.") from None
    return encoded


def is_coded(stored: str) -> bool:
    """Whether a text has the prefix of a registered codec other than JSON."""
    prefix, colon, _ = stored.partition(":")
    return prefix + colon in _by_prefix


def decode(stored: str, what: str = "The job's data") -> Any:
    """Decode a stored payload from any codec.

    Raises:
        PayloadError: No registered codec wrote it, it is damaged, or it unpacks to more than 1 MiB.
    """
    prefix, colon, text = stored.partition(":") if stored[:1].islower() else ("", "", stored)
    codec = _by_prefix.get(prefix + colon)
    try:
        return json.loads(stored) if codec is None else codec.decode(text)
    except (ValueError, TypeError, OverflowError, zlib.error, EOFError, RecursionError, UsageError) as error:
        why = str(error) or type(error).__name__
        raise PayloadError(
            f"{what} cannot be read ({why}): it was written with another serializer, or is damaged; "
            "read it with the client that wrote it."
        ) from None
