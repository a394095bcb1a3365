"""TLS: certificates are checked unless the URL says otherwise.

The server in the wheel is built without TLS, so a relay in front of it speaks TLS. The certificate is for
``localhost``, signed by itself, valid for a century, and used by nothing but these tests.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from orchestration_queue.errors import TransportError
from orchestration_queue.protocol.call import Call
from orchestration_queue.server import AsyncConnection, Connection

CERTIFICATE = Path(__file__).with_name("certificates") / "localhost.pem"
PING = Call("PING")
SOON = timedelta(seconds=2)


@pytest.fixture
def port(server_url: str) -> Iterator[int]:
    """A port where the session's server answers over TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_suffix(".key"))
    with socket.create_server(("localhost", 0)) as listener:
        relay = threading.Thread(target=serve, args=(listener, context, server_url.removeprefix("unix://")))
        relay.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        relay.join(10)


def serve(listener: socket.socket, context: ssl.SSLContext, path: str) -> None:
    """Relay connections until the listener is shut down."""
    relays: list[threading.Thread] = []
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            break
        try:
            client = context.wrap_socket(plain, server_side=True)
        except OSError:  # it did not like our certificate
            plain.close()
            continue
        relays.append(threading.Thread(target=relay, args=(client, path)))
        relays[-1].start()
    for thread in relays:
        thread.join(10)


def relay(client: ssl.SSLSocket, path: str) -> None:
    """Pass bytes on in both directions until one end closes."""
    with client, socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        back = threading.Thread(target=pump, args=(server, client))
        back.start()
        pump(client, server)
        back.join(10)


def pump(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on in one direction until an end closes; then end the other direction too."""
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def test_a_known_certificate_is_accepted(port: int) -> None:
    with Connection.open(f"rediss://localhost:{port}?ssl_ca_certs={CERTIFICATE}", libraries=()) as connection:
        assert connection.execute(PING) == b"PONG"


async def test_the_async_face_does_the_same(port: int) -> None:
    url = f"valkeys://localhost:{port}?ssl_ca_certs={CERTIFICATE}"
    async with await AsyncConnection.open(url, libraries=()) as connection:
        assert await connection.execute(PING) == b"PONG"


def test_an_unknown_certificate_is_refused(port: int) -> None:
    with pytest.raises(TransportError, match="certificate verify failed"):
        Connection.open(f"rediss://localhost:{port}", connect_timeout=SOON)


def test_a_certificate_for_another_host_is_refused(port: int) -> None:
    with pytest.raises(TransportError, match="IP address mismatch"):
        Connection.open(f"rediss://127.0.0.1:{port}?ssl_ca_certs={CERTIFICATE}", connect_timeout=SOON)


def test_checks_can_be_turned_off(port: int) -> None:
    with Connection.open(f"rediss://127.0.0.1:{port}?ssl_cert_reqs=none", libraries=()) as connection:
        assert connection.execute(PING) == b"PONG"
