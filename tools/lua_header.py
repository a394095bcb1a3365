"""The contract at the head of a Lua function file, as data.

One line per fact::

    --- Create one job and put it where it belongs.
    --- @queue id!                            `queue` is the key `id` without its name; `!` refuses another ending
    --- @key   id            string           counter of automatic ids
    --- @key?  parent_deps   set              may be left out by callers
    --- @arg   job_name      text             text, bytes, json, int, number or flag ("0" or "1")
    --- @arg   priority      int?             nil if it is not a number; without `?` that is an error
    --- @arg   jid           name             qless only: not empty; so are `count` (from 1) and `offset` (from 0)
    --- @arg   limit         count?           qless only: nil if it is left out
    --- @arg   delay_ms      int =0           with a default
    --- @arg   child_count   int #children    the length of a list that follows
    --- @arg*  extra_deps    text             all that is left, or as many as were counted
    --- @record job  ...  @end job            the arguments between become fields of one table
    --- @each children FlowChild: what one is ... @end children    keys and arguments that repeat
    --- @like   addJob.job -data -opts        the arguments of that record, as `glidemq` declares them, except some
    --- @flags  no-writes                     it only reads: callers need no right to write
    --- @flags  allow-oom                     a full server runs it too: it ends work or frees memory
    --- @returns text   the id, or `duplicate`
    --- @error   the id key does not end in `:id`
    --- @cost    O(1)
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["Argument", "Contract", "HeaderError", "Key", "Repeated", "read_contract"]

_TYPES = {"text", "bytes", "json", "int", "number", "flag", "name", "count", "offset"}
_FACT = re.compile(r"@(?P<tag>\w+)(?P<mark>[?*]?)\s+(?P<body>.*)")
_KEY = re.compile(r"(?P<name>[a-z_]+)\s+(?P<type>[a-z]+)\s*(?P<what>.*)")
_ARGUMENT = re.compile(
    r"(?P<name>[a-z_]+)\s+(?P<type>[a-z]+)(?P<maybe>\??)(?:\s(?:=(?P<default>\S*)|#(?P<counts>\w+)))?(?:\s+(?P<what>.*))?$"
)


class HeaderError(ValueError):
    """A header breaks the grammar, or its body breaks the contract."""


@dataclass(frozen=True)
class Key:
    """A key the function names; ``of_queue`` when a queue has one of it, which callers then do not name."""

    name: str
    what: str
    optional: bool = False
    of_queue: bool = False


@dataclass(frozen=True)
class Argument:
    """An argument the function takes; ``record`` names the Lua table it is a field of."""

    name: str
    type: str
    what: str
    default: str | None = None
    maybe: bool = False
    counts: str | None = None
    repeats: bool = False
    record: str | None = None


@dataclass(frozen=True)
class Repeated:
    """Keys and arguments that come once per item of a list; they follow ``after`` of the others."""

    name: str
    item: str
    what: str
    keys: tuple[Key, ...]
    arguments: tuple[Argument, ...]
    after: int


@dataclass
class Contract:
    """All that the head of one function file says, and the Lua below it."""

    name: str
    summary: str = ""
    queue: str | None = None
    keys: list[Key] = field(default_factory=list)
    arguments: list[Argument] = field(default_factory=list)
    lists: list[Repeated] = field(default_factory=list)
    flags: str = ""
    returns: str = ""
    errors: list[str] = field(default_factory=list)
    cost: str = ""
    body: str = ""

    def counter(self, counted: str) -> Argument:
        """Return the argument that gives a list's length."""
        if found := next((argument for argument in self.arguments if argument.counts == counted), None):
            return found
        raise HeaderError(f"{self.name}: no argument counts {counted}")


def read_contract(path: Path, queue_keys: Collection[str] = ()) -> Contract:
    """Read one function file.

    Args:
        path: Where it is.
        queue_keys: Names of the keys that a queue has one of.

    Raises:
        HeaderError: A line of its header is not understood.
    """
    lines = path.read_text("utf-8").splitlines()
    head = [line[3:].strip() for line in lines if line.startswith("---")]
    contract = Contract(path.stem, body="\n".join(lines[len(head) :]).strip())
    try:
        _Reader(contract, path.parent.parent / "glidemq", queue_keys).read(head)
    except HeaderError as error:
        raise HeaderError(f"{path}: {error}") from None
    return contract


class _Reader:
    """Collects facts into a contract, line by line."""

    def __init__(self, contract: Contract, wire: Path, queue_keys: Collection[str]) -> None:
        self.contract = contract
        self.queue_keys = queue_keys
        self.wire = wire
        self.record: str | None = None
        self.each: tuple[str, str, str] | None = None
        self.keys = contract.keys
        self.arguments = contract.arguments

    def read(self, head: list[str]) -> None:
        for line in head:
            if not line.startswith("@"):
                self.contract.summary = f"{self.contract.summary} {line}".strip()
            elif fact := _FACT.match(line):
                self._fact(fact["tag"], fact["mark"], fact["body"].strip())
            else:
                raise HeaderError(f"cannot read {line!r}")
        if not (self.contract.summary and self.contract.returns and self.contract.cost):
            raise HeaderError("a summary, @returns and @cost are required")

    def _fact(self, tag: str, mark: str, body: str) -> None:
        match tag:
            case "key":
                key = _key(body, optional=mark == "?")
                self.keys.append(replace(key, of_queue=not key.optional and key.name in self.queue_keys))
            case "arg":
                self.arguments.append(_argument(body, repeats=mark == "*", record=self.record))
            case "record":
                self.record = body.split()[0]
            case "each":
                self._begin(body)
            case "like":
                self._borrow(*body.split())
            case "end":
                self._end()
            case "error":
                self.contract.errors.append(body)
            case "queue" | "flags" | "returns" | "cost":
                setattr(self.contract, tag, body)
            case _:
                raise HeaderError(f"unknown @{tag}")

    def _begin(self, body: str) -> None:
        head, _, what = body.partition(": ")
        name, _, item = head.partition(" ")
        self.each = (name, item, what)
        self.keys, self.arguments = [], []

    def _borrow(self, source: str, *but: str) -> None:
        """Take the arguments of a record that another function declares, except some: ``-name``."""
        function, _, record = source.partition(".")
        theirs = read_contract(self.wire / f"{function}.lua").arguments
        self.arguments.extend(
            replace(argument, record=None)
            for argument in theirs
            if argument.record == record and f"-{argument.name}" not in but
        )

    def _end(self) -> None:
        if self.each:
            after = len(self.contract.arguments)
            self.contract.lists.append(Repeated(*self.each, tuple(self.keys), tuple(self.arguments), after))
            self.keys, self.arguments = self.contract.keys, self.contract.arguments
        self.record = self.each = None


def _key(body: str, *, optional: bool) -> Key:
    if not (found := _KEY.match(body)):
        raise HeaderError(f"cannot read the key {body!r}")
    return Key(found["name"], f"{found['type']}; {found['what']}", optional)


def _argument(body: str, *, repeats: bool, record: str | None) -> Argument:
    found = _ARGUMENT.match(body)
    if not found or found["type"] not in _TYPES:
        raise HeaderError(f"cannot read the argument {body!r}")
    return Argument(
        name=found["name"],
        type=found["type"],
        what=found["what"] or "",
        default=found["default"],
        maybe=bool(found["maybe"]),
        counts=found["counts"],
        repeats=repeats,
        record=record,
    )
