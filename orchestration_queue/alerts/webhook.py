"""The signature of messages to webhooks, and how a receiver verifies it."""

from __future__ import annotations

import hashlib
import hmac

from orchestration_queue.server.clock import now_ms

__all__ = ["SIGNATURE", "TIMESTAMP", "sign", "verify"]

TIMESTAMP = "OQ-Timestamp"
"""The header with the time of sending, in epoch seconds."""
SIGNATURE = "OQ-Signature"
"""The header with the signature."""
_TOLERANCE_S = 300


def sign(key: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a body that is sent at this time: HMAC-SHA256 of both."""
    return (
        "v1=" + hmac.new(key.encode(), timestamp.encode("utf-8", "replace") + b"." + body, hashlib.sha256).hexdigest()
    )


def verify(key: str, timestamp: str, signature: str, body: bytes, *, tolerance: float = _TOLERANCE_S) -> bool:
    """Return whether a webhook's request comes from who knows the key, and is recent.

    Args:
        key: The receiver's key, from ``OQ_ALERT_KEY_...``.
        timestamp: The header ``OQ-Timestamp``.
        signature: The header ``OQ-Signature``.
        body: The request's body, as received.
        tolerance: Maximum age of the request, in seconds.
    """
    is_signed = hmac.compare_digest(sign(key, timestamp, body).encode(), signature.encode("utf-8", "replace"))
    return is_signed and timestamp.isdecimal() and abs(now_ms() / 1000 - int(timestamp)) <= tolerance
