"""Decide which messages of the external side a step gets: each one once, and only the last run's results. No I/O."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import cast

from dagster_pipes import PIPES_PROTOCOL_VERSION, PIPES_PROTOCOL_VERSION_FIELD, PipesMessage

from orchestration_queue.protocol.call import Reply
from orchestration_queue.protocol.record import pairs

__all__ = ["Inbox", "InboxEntry", "read_entries"]


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """One entry of a session's streams.

    Attributes:
        id: The entry's id in its stream.
        writer: The writer's id.
        seq: The number of the writer's message in this stream, from 1.
        run: The run of the external work; a new run discards the results of earlier ones.
        message: The message; None if it cannot be parsed.
    """

    id: str
    writer: str
    seq: int
    run: str
    message: PipesMessage | None

    @property
    def position(self) -> tuple[int, int]:
        """The id as numbers that compare."""
        return position(self.id)


def position(entry_id: str) -> tuple[int, int]:
    """Return a stream entry's id as numbers that compare."""
    time_ms, _, number = entry_id.partition("-")
    return int(time_ms), int(number or 0)


def read_entries(reply: Reply) -> list[InboxEntry]:
    """Parse the server's reply into the entries of one stream."""
    return [_entry(entry_id.decode(), pairs(fields)) for entry_id, fields in reply]


def _entry(entry_id: str, fields: dict[str, str]) -> InboxEntry:
    try:
        message = json.loads(fields["message"])
        is_message = isinstance(message, dict) and isinstance(message.get("method"), str) and "params" in message
        seq = int(fields["seq"])
    except (KeyError, ValueError):
        is_message, message, seq = False, None, 0
    return InboxEntry(entry_id, fields.get("writer", ""), seq, fields.get("run", ""), message if is_message else None)


class Inbox:
    """Decides which messages to pass on, and when.

    Logs are passed on as they arrive. Results are held until the session ends, because another worker or attempt may
    run the external work again: then only the results of its last run count, and only the last report for each asset
    and each check.

    Args:
        read_until: The id of the last log entry that an earlier reader passed on.
    """

    def __init__(self, read_until: str = "0-0") -> None:
        self._read_until = position(read_until)
        self._seen: dict[tuple[str, str], int] = {}
        self._run: str | None = None
        self._past: set[str] = set()
        self._was_opened = False
        self._held: dict[Hashable, PipesMessage] = {}
        self._last_writer = ""
        self._closed: dict[str, PipesMessage] = {}

    def logs(self, entries: Sequence[InboxEntry]) -> list[PipesMessage]:
        """Return the messages to pass on from entries of the stream of logs."""
        messages: list[PipesMessage] = []
        for entry in entries:
            last = self._seen.get(("logs", entry.writer), 0)
            if not self._is_new("logs", entry) or entry.position <= self._read_until:
                continue
            # After an earlier reader, the last number of a writer is unknown.
            if entry.seq > last + 1 and (last or self._read_until == (0, 0)):
                messages.append(_note(f"{entry.seq - last - 1} log messages of the external side were lost"))
            messages.append(entry.message or _unreadable(entry))
        return messages

    def results(self, entries: Sequence[InboxEntry]) -> list[PipesMessage]:
        """Return the messages to pass on at once from entries of the stream of results; hold the others."""
        messages: list[PipesMessage] = []
        for entry in entries:
            if not self._is_new("results", entry):
                continue
            if entry.message is None:
                messages.append(_unreadable(entry))
                continue
            if entry.message["method"] == "opened":
                messages += self._open(entry, entry.message)
            elif entry.run == self._run:
                self._hold(entry, entry.message)
        return messages

    def conclude(self) -> list[PipesMessage]:
        """Return the held results at the end of the session, and the closing message of its last writer."""
        closed = self._closed.get(self._last_writer)
        return [*self._held.values(), *([closed] if closed else [])]

    def _is_new(self, stream: str, entry: InboxEntry) -> bool:
        """Return whether the writer's number is new; an entry that cannot be parsed has none."""
        if entry.seq and entry.seq <= self._seen.get((stream, entry.writer), 0):
            return False
        self._seen[stream, entry.writer] = max(entry.seq, self._seen.get((stream, entry.writer), 0))
        return True

    def _open(self, entry: InboxEntry, message: PipesMessage) -> list[PipesMessage]:
        if entry.run in self._past:
            return []
        messages = []
        if self._run is not None and entry.run != self._run:
            self._past.add(self._run)
            reports = f"; discarded {len(self._held)} reports of its previous run" if self._held else ""
            messages.append(_note(f"The external work runs again{reports}"))
            self._held.clear()
            self._closed.clear()
        self._run, self._last_writer = entry.run, entry.writer
        if not self._was_opened:
            self._was_opened = True
            messages.append(message)
        return messages

    def _hold(self, entry: InboxEntry, message: PipesMessage) -> None:
        params = message["params"] or {}
        match message["method"]:
            case "closed":
                self._closed[entry.writer] = message
            case "report_asset_materialization":
                self._held["asset", params.get("asset_key")] = message
            case "report_asset_check":
                self._held["check", params.get("asset_key"), params.get("check_name")] = message
            case _:
                self._held[entry.id] = message


def _unreadable(entry: InboxEntry) -> PipesMessage:
    return _note(f"Entry {entry.id} of the external side is not a Pipes message and was ignored")


def _note(text: str) -> PipesMessage:
    params = {"message": f"[pipes] {text}.", "level": "WARNING"}
    # Its first key starts with underscores, so a class or a typed literal cannot contain it.
    return cast(PipesMessage, {PIPES_PROTOCOL_VERSION_FIELD: PIPES_PROTOCOL_VERSION, "method": "log", "params": params})
