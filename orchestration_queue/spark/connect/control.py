"""Control a session from any process that knows its id: list what runs in it, interrupt it, and close the session.

PySpark's own client would wait ten minutes for an unreachable server; every call here has a deadline of seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

import grpc
from pyspark.sql.connect import proto
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

from orchestration_queue.spark.connect.address import DEFAULT_USER

__all__ = ["SessionControl", "channel_builder", "fence", "is_refusal", "reason"]

_DEADLINE_S = 5.0
_ANSWER_S = 60.0
"""A server's first session takes seconds, and more on a busy machine."""
_AWAY_S = 5.0
"""How long a server may be unreachable, as during a restart."""
_LOOK_S = 0.05
_NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAUTHENTICATED)


class _OneChannelBuilder(DefaultChannelBuilder):
    """Returns the same connection to all callers, because each new one costs some milliseconds."""

    _channel: grpc.Channel | None = None

    def toChannel(self) -> grpc.Channel:  # noqa: N802 (PySpark's name)
        """Return the connection."""
        if self._channel is None:
            self._channel = super().toChannel()
        return self._channel


def channel_builder(url: str, session: str) -> DefaultChannelBuilder:
    """Return PySpark's channel builder for one session, with a single connection."""
    builder = _OneChannelBuilder(url)
    builder.set("session_id", session)
    if builder.userId is None:
        builder.set("user_id", DEFAULT_USER)
    return builder


class SessionControl:
    """Opens, inspects and ends one session.

    Args:
        url: The server.
        session: The session's id.
        builder: The builder whose connection to use; default: a new one.
    """

    def __init__(self, url: str, session: str, builder: DefaultChannelBuilder | None = None) -> None:
        builder = builder or channel_builder(url, session)
        self._about: dict[str, Any] = {
            "session_id": session,
            "user_context": proto.UserContext(user_id=builder.userId or ""),
            "client_type": "orchestration-queue",
        }
        self._metadata = list(builder.metadata())
        self._channel = builder.toChannel()
        self._stub = SparkConnectServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated code

    def __enter__(self) -> Self:
        """Return the control itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._channel.close()

    def open(self, conf: Mapping[str, str] | None = None) -> None:
        """Have the server open the session, and set its properties in the same call.

        Raises:
            grpc.RpcError: The server does not answer, rejects the token, or refuses a property.
        """
        request = proto.ConfigRequest(**self._about)
        request.operation.set.SetInParent()
        request.operation.set.pairs.extend(proto.KeyValue(key=key, value=value) for key, value in (conf or {}).items())
        deadline = time.monotonic() + _AWAY_S
        while True:
            try:
                self._stub.Config(request, metadata=self._metadata, timeout=_ANSWER_S)
                return
            except grpc.RpcError as error:
                if _code(error) is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_S)

    def keep(self) -> None:
        """Use the session, without waiting: the server closes one that no call used for its session timeout."""
        request = proto.ConfigRequest(**self._about)
        request.operation.get.SetInParent()
        self._stub.Config.future(request, metadata=self._metadata, timeout=_DEADLINE_S)

    def running(self) -> list[str]:
        """Return the ids of the operations that run; none with versions of Spark that cannot list them.

        Raises:
            grpc.RpcError: The server does not answer.
        """
        if not hasattr(proto, "GetStatusRequest"):
            return []
        request = proto.GetStatusRequest(**self._about)
        request.operation_status.SetInParent()
        try:
            reply = self._stub.GetStatus(request, metadata=self._metadata, timeout=_DEADLINE_S)
        except grpc.RpcError as error:
            if _is_no_session(error) or _code(error) is grpc.StatusCode.UNIMPLEMENTED:
                return []
            raise
        # A "terminating" operation has done its work; only its rows have not been fetched yet.
        at_work = proto.GetStatusResponse.OperationStatus.OPERATION_STATE_RUNNING
        return [status.operation_id for status in reply.operation_statuses if status.state == at_work]

    def interrupt(self) -> list[str]:
        """Interrupt all operations of the session, and return their ids.

        Raises:
            grpc.RpcError: The server does not answer.
        """
        request = proto.InterruptRequest(
            **self._about, interrupt_type=proto.InterruptRequest.InterruptType.INTERRUPT_TYPE_ALL
        )
        try:
            reply = self._stub.Interrupt(request, metadata=self._metadata, timeout=_DEADLINE_S)
        except grpc.RpcError as error:
            if _is_no_session(error):
                return []
            raise
        return list(reply.interrupted_ids)

    def release(self) -> None:
        """Close the session: clients that still hold it can no longer use it.

        Raises:
            grpc.RpcError: The server does not answer.
        """
        request = proto.ReleaseSessionRequest(**self._about)
        self._stub.ReleaseSession(request, metadata=self._metadata, timeout=_DEADLINE_S)


def fence(url: str, session: str) -> list[str]:
    """End what still runs in a session, wait for its end, and close the session.

    Returns:
        The operations that ran.

    Raises:
        grpc.RpcError: The server does not answer.
        TimeoutError: An operation does not end.
    """
    with SessionControl(url, session) as control:
        try:
            control.open()  # or a late attempt could still open it: only a session that was open stays closed
        except grpc.RpcError as error:
            if _is_no_session(error):
                return []
            raise
        found = dict.fromkeys(control.running())
        # Wait: an interrupted write removes its files, and the next attempt may write the same ones.
        found |= dict.fromkeys(control.interrupt())
        deadline = time.monotonic() + _DEADLINE_S
        while running := control.running():
            if time.monotonic() > deadline:
                raise TimeoutError(f"operation {running[0]} of session {session} does not end")
            control.interrupt()
            time.sleep(_LOOK_S)
        control.release()
    return list(found)


def is_refusal(error: grpc.RpcError) -> bool:
    """Return whether Spark received a call and refused it."""
    return _code(error) not in _NO_ANSWER


def reason(error: grpc.RpcError) -> str:
    """Return an error's message in one line."""
    details = error.details() if isinstance(error, grpc.Call) else ""
    return (details or str(error)).strip().partition("\n")[0]


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None


def _is_no_session(error: grpc.RpcError) -> bool:
    """Return whether the server never had the session, or has closed it."""
    return "INVALID_HANDLE.SESSION_" in reason(error)
