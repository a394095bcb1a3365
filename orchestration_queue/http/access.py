"""Access control: bearer tokens with scopes and queue patterns, stored as digests, and groups of users."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.http.routes import Scope

__all__ = ["Access", "DeniedError", "Token", "new_token", "read_groups", "read_tokens"]

_GRANTED = {
    Scope.READ: {Scope.READ, Scope.ACT, Scope.ADMIN},
    Scope.ADD: {Scope.ADD, Scope.ACT, Scope.ADMIN},
    Scope.WORK: {Scope.WORK, Scope.ACT, Scope.ADMIN},
    Scope.ACT: {Scope.ACT, Scope.ADMIN},
    Scope.ADMIN: {Scope.ADMIN},
}
"""The scopes that grant each scope that a route needs."""
_MOST_A_SECOND = 1_000_000


class DeniedError(Exception):
    """A request that its token does not allow.

    Attributes:
        status: 401 without a known token, 403 when it allows too little, 429 when it comes too often.
        text: The sentence for the client.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The response's headers: when to try again."""
        return ((b"retry-after", b"1"),) if self.status == 429 else ()


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without its text.

    Attributes:
        name: The owner's name, for the audit log.
        digest: The SHA-256 of its text, as hex. Tokens are random and long, so that no slow hash is needed.
        scopes: The scopes that it grants.
        queues: Patterns of the queues that it covers, such as ``billing-*``.
        rate: Maximum requests per second to each serving process; None for no limit.
    """

    name: str
    digest: str
    scopes: frozenset[Scope]
    queues: tuple[str, ...] = ("*",)
    rate: float | None = None

    @classmethod
    def of(
        cls,
        name: str,
        text: str,
        scopes: Iterable[str],
        queues: Sequence[str] = ("*",),
        rate: float | None = None,
    ) -> Token:
        """Return the token for a text.

        Raises:
            UsageError: A scope does not exist, no queue is given, or the rate is not a number above 0.
        """
        return cls(name, _digest(text), _scopes(scopes), _patterns(queues), _rate(rate))

    @classmethod
    def of_group(cls, name: str, scopes: Iterable[str], queues: Sequence[str] = ("*",)) -> Token:
        """Return what a group of users may do; the header names the group.

        Raises:
            UsageError: The name is empty or contains a comma, a scope does not exist, or no queue is given.
        """
        if not name.strip() or "," in name:
            raise UsageError(f"A group's name must be text without a comma, got {name!r}; pass 'oncall'.")
        return cls(name.strip(), "", _scopes(scopes), _patterns(queues))

    def allows(self, scope: Scope, queues: Sequence[str]) -> bool:
        """Return whether it grants a scope for all these queues; without a queue it needs the pattern ``*``."""
        if not self.scopes & _GRANTED[scope]:
            return False
        if not queues:
            return "*" in self.queues
        return all(any(fnmatchcase(queue, pattern) for pattern in self.queues) for queue in queues)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _scopes(given: Iterable[str]) -> frozenset[Scope]:
    known = [scope for scope in Scope if scope is not Scope.OPEN]
    scopes = list(given)
    for scope in scopes:
        if scope not in known:
            raise UsageError(f"A token's scope must be one of {', '.join(known)}, got {scope!r}.")
    if not scopes:
        raise UsageError(f"A token needs a scope; pass one of {', '.join(known)}.")
    return frozenset(map(Scope, scopes))


def _patterns(given: Sequence[str]) -> tuple[str, ...]:
    patterns = tuple(given)
    if not patterns or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise UsageError(f"A token's `queues` must be patterns such as 'billing-*', got {given!r}; pass '*' for all.")
    return patterns


def _rate(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given <= _MOST_A_SECOND:
        return given
    raise UsageError(f"A token's `rate` must be a number of requests a second above 0, got {given!r}; pass 50.")


def new_token() -> str:
    """Return the text of a new token."""
    return f"oq_{secrets.token_urlsafe(32)}"


def read_tokens(path: Path) -> list[Token]:
    """Read a file of tokens: a JSON array of objects with ``name``, ``sha256``, ``scopes``, ``queues`` and ``rate``.

    Raises:
        UsageError: The file cannot be read, or an entry is incomplete.
    """
    return _read_entries(
        "token file",
        path,
        lambda entry: Token(
            str(entry["name"]),
            str(entry["sha256"]),
            _scopes(entry["scopes"]),
            _patterns(entry.get("queues", ["*"])),
            _rate(entry.get("rate")),
        ),
        "make its entries with `oq token`",
    )


def read_groups(path: Path) -> list[Token]:
    """Read a file of groups: a JSON array of objects with ``group``, ``scopes`` and ``queues``.

    Raises:
        UsageError: The file cannot be read, or an entry is incomplete.
    """
    return _read_entries(
        "file of groups",
        path,
        lambda entry: Token.of_group(str(entry["group"]), entry["scopes"], entry.get("queues", ["*"])),
        'write entries such as {"group": "oncall", "scopes": ["act"]}',
    )


def _read_entries(what: str, path: Path, read: Callable[[Any], Token], advice: str) -> list[Token]:
    try:
        return [read(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"The {what} {str(path)!r} cannot be read ({error}); {advice}.") from None


class _Limiter:
    """A token bucket that fills at a steady rate; its capacity is one second's requests, and at least one."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = self._left = max(1.0, rate)
        self._at = time.monotonic()

    def take(self) -> bool:
        """Take one request from the bucket; False when it is empty."""
        now = time.monotonic()
        self._left, self._at = min(self._most, self._left + (now - self._at) * self._rate), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Access:
    """The tokens of one app.

    Args:
        tokens: The known tokens; None allows everything to everyone, for an app behind another authentication.
        trusted_header: The header in which a reverse proxy names the user it has authenticated. The proxy must remove
            it from clients' requests.
        groups_header: The header in which it names the user's groups, separated by commas; without it such a user may
            do everything. The proxy must remove this one, too.
        groups: What each group may do, by :meth:`Token.of_group`; a user may do what any of the user's groups may do.

    Raises:
        UsageError: There are groups without both headers, or a header of groups without groups.
    """

    def __init__(
        self,
        tokens: Sequence[Token] | None = None,
        *,
        trusted_header: str | None = None,
        groups_header: str | None = None,
        groups: Sequence[Token] = (),
    ) -> None:
        if bool(groups) is not (groups_header is not None) or (groups and trusted_header is None):
            raise UsageError(
                "Groups need a header for users, a header for their groups, and what each group may do; "
                "pass `trusted_header`, `groups_header` and `groups`."
            )
        self._tokens = None if tokens is None else tuple(tokens)
        self._trusted_header = None if trusted_header is None else trusted_header.lower()
        self._groups_header = None if groups_header is None else groups_header.lower()
        self._groups = tuple(groups)
        self._limiters = {each.digest.lower(): _Limiter(each.rate) for each in self._tokens or () if each.rate}

    @property
    def is_open(self) -> bool:
        """Whether no token is needed."""
        return self._tokens is None and self._trusted_header is None

    def check(self, scope: Scope, headers: Mapping[str, str], queues: Sequence[str]) -> str:
        """Return the name of the requesting user.

        Args:
            scope: The scope that the request needs.
            headers: Header values by lower-case name.
            queues: The queues that the request concerns; empty for all of them.

        Raises:
            DeniedError: No token, an unknown one, or one that does not allow it.
        """
        if self.is_open:
            return ""
        if self._trusted_header is not None and (user := headers.get(self._trusted_header)):
            if self._groups_header is not None:
                self._check_groups(user, headers.get(self._groups_header, ""), scope, queues)
            return user
        return self.allow(self._bearer(headers), scope, queues)

    def _check_groups(self, user: str, named: str, scope: Scope, queues: Sequence[str]) -> None:
        """Refuse what none of a user's groups allows; each of several queues may be allowed by another group."""
        names = {name.strip() for name in named.split(",")}
        groups = [group for group in self._groups if group.name in names]
        for wanted in [[queue] for queue in queues] or [[]]:
            if not any(group.allows(scope, wanted) for group in groups):
                raise DeniedError(403, f"No group of '{user}' allows '{scope}' here")

    def _bearer(self, headers: Mapping[str, str]) -> Token | None:
        kind, _, text = headers.get("authorization", "").partition(" ")
        return self.find(text.strip()) if kind.lower() == "bearer" else None

    def throttle(self, headers: Mapping[str, str]) -> None:
        """Count a request against the rate of its token.

        Raises:
            DeniedError: The token's rate is exceeded.
        """
        token = self._bearer(headers) if self._limiters else None
        limiter = None if token is None else self._limiters.get(token.digest.lower())
        if token is not None and limiter is not None and not limiter.take():
            raise DeniedError(429, f"Token '{token.name}' may send {token.rate:g} requests a second; wait a second")

    def allow(self, token: Token | None, scope: Scope, queues: Sequence[str]) -> str:
        """Return the name of a token's owner, if the token grants a scope for queues.

        Raises:
            DeniedError: There is no token, or it does not grant it.
        """
        if token is None:
            raise DeniedError(401, "A bearer token is required")
        if not token.allows(scope, queues):
            raise DeniedError(403, f"Token '{token.name}' does not allow '{scope}' here")
        return token.name

    def find(self, text: str) -> Token | None:
        """Return the token with a text; None when it is unknown."""
        return self.with_digest(_digest(text))

    def with_digest(self, digest: str) -> Token | None:
        """Return the token with a digest; None when it is unknown."""
        # All tokens are compared, so that the time does not tell which one matched.
        found = None
        for token in self._tokens or ():
            if hmac.compare_digest(token.digest.lower(), digest):
                found = token
        return found
