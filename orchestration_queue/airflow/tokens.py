"""Encrypt the tokens of workloads, which a queue's data and every view of it would otherwise show."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from airflow.configuration import conf
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from orchestration_queue.errors import PayloadError, UsageError

__all__ = ["check_keys", "seal", "unseal"]

_PURPOSE = b"orchestration_queue.airflow token\0"
_SOURCES = (("orchestration_queue", "token_key"), ("core", "fernet_key"), ("api_auth", "jwt_secret"))
"""Where the secret is taken from: the first that is configured. Scheduler and workers must have the same one."""


@cache
def _cipher() -> MultiFernet:
    for section, option in _SOURCES:
        if secrets := [part.strip() for part in (conf.get(section, option, fallback="") or "").split(",") if part]:
            # Derived, so that a token of the queue is of no use where Airflow uses the same secret, and the reverse.
            digests = [hashlib.sha256(_PURPOSE + secret.encode()).digest() for secret in secrets]
            return MultiFernet([Fernet(base64.urlsafe_b64encode(digest)) for digest in digests])
    raise UsageError(
        "Airflow has no secret to encrypt the tokens of tasks with; set `[orchestration_queue] token_key`, or "
        "`[core] fernet_key`, to the same text for scheduler and workers."
    )


def check_keys() -> None:
    """Check that tokens can be encrypted.

    Raises:
        UsageError: No secret is configured.
    """
    _cipher()


def seal(token: str) -> str:
    """Encrypt a token.

    Raises:
        UsageError: No secret is configured.
    """
    return _cipher().encrypt(token.encode()).decode()


def unseal(sealed: str) -> str:
    """Decrypt a token.

    Raises:
        UsageError: No secret is configured.
        PayloadError: It was encrypted with another secret.
    """
    try:
        return _cipher().decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise PayloadError(
            "The task's token can't be decrypted here; set `[orchestration_queue] token_key`, or `[core] fernet_key`, "
            "to the same text for scheduler and workers."
        ) from None
