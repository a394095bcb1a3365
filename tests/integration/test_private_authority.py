"""A server that only clients of its own authority may use: real TLS, with certificates made for the test."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import TransportError
from orchestration_queue.worker import AsyncActiveJob
from tests.conftest import start_server
from tests.faces import Face
from tests.workers import working

REDIS = "/usr/bin/redis-server"
OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(
    OPENSSL is None or not Path(REDIS).exists(), reason="needs openssl, and a Redis with TLS as Debian's"
)
EXTENSIONS = "subjectAltName=DNS:localhost,IP:127.0.0.1\n"


def openssl(folder: Path, *arguments: str) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def certify(folder: Path, name: str) -> None:
    """Make a key, and a certificate signed by the authority."""
    openssl(
        folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "r"
    )
    openssl(
        folder, "x509", "-req", "-in", "r", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "extensions", "-out", f"{name}.pem",
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    (folder / "extensions").write_text(EXTENSIONS)
    openssl(
        folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=Our authority", "-days", "2",
        "-keyout", "ca.key", "-out", "ca.pem",
    )  # fmt: skip
    certify(folder, "server")
    certify(folder, "client")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = ("--tls-port", str(port), "--tls-ca-cert-file", "ca.pem", "--tls-auth-clients", "yes")
    own = ("--tls-cert-file", "server.pem", "--tls-key-file", "server.key")
    process = start_server(folder / "s", *settings, *own, binary=REDIS)
    yield f"rediss://localhost:{port}?timeout=20&connect_timeout=2&ssl_ca_certs={folder}/ca.pem"
    process.kill()
    process.wait(60)


async def double(job: AsyncActiveJob) -> int:
    return 2 * int(job.data)


@pytest.mark.parametrize("name", ["sync", "async"])
async def test_a_client_with_a_certificate_of_the_authority_is_served(
    address: str, folder: Path, name: str, queue_name: str
) -> None:
    url = f"{address}&ssl_certfile={folder}/client.pem&ssl_keyfile={folder}/client.key"
    async with (
        Face(name, url).queue(queue_name) as queue,
        AsyncQueue(queue_name, url=url) as own,
        working(own, double, url),
    ):
        assert await (await queue.add("double", 21)).wait(60) == 42


@pytest.mark.parametrize("name", ["sync", "async"])
async def test_a_client_without_one_is_refused_in_time(address: str, name: str, queue_name: str) -> None:
    with pytest.raises(TransportError, match="Cannot reach") as caught:
        await Face(name, address).queue(queue_name).add("double", 21)
    assert not caught.value.maybe_applied


@pytest.mark.parametrize("name", ["sync", "async"])
async def test_a_server_of_an_unknown_authority_is_refused(address: str, name: str, queue_name: str) -> None:
    url = address.partition("&ssl_ca_certs")[0]
    with pytest.raises(TransportError, match="certificate") as caught:
        await Face(name, url).queue(queue_name).add("double", 21)
    assert not caught.value.maybe_applied
