"""The endpoint of a worker process: metrics for Prometheus, probes for the process manager."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import UsageError
from orchestration_queue.worker import Worker

__all__ = ["TelemetryServer"]

log = get_logger("orchestration_queue.telemetry")

_TEXT = "text/plain; charset=utf-8"


class TelemetryServer:
    """Answers ``/metrics``, ``/livez`` and ``/readyz`` from a separate thread.

    ``/livez`` returns 200 as long as the process runs, also during an outage of the queue's server, which must not
    restart every worker. ``/readyz`` returns 503 until all workers have joined their queues, while they can't reach
    the server, and once they are stopping.

    Args:
        registry: The metrics.
        workers: The workers that the probes check; more can be added later.
        host: The address to listen on; by default only this machine can connect.
        port: The port; 0 takes any free one, which is then in :attr:`port`.

    Raises:
        UsageError: The port can't be listened on.
    """

    def __init__(
        self, registry: CollectorRegistry, workers: Iterable[Worker] = (), *, host: str = "127.0.0.1", port: int = 9464
    ) -> None:
        self._registry = registry
        self._workers = workers
        try:
            self._http = ThreadingHTTPServer((host, port), self._make_handler())
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"Cannot listen on port {port} of {host} ({error}); choose another --metrics-port."
            ) from error
        self._http.daemon_threads = True
        self.port: int = self._http.server_address[1]
        self._thread = Thread(target=self._http.serve_forever, name="oq-telemetry", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        log.info("Metrics and probes at http://%s:%d", *self._http.server_address[:2])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _ready(self) -> tuple[int, str]:
        behind = [worker.keys.queue for worker in self._workers if not worker.is_ready]
        return (503, f"not ready: {', '.join(behind)}\n") if behind else (200, "ready\n")

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        pages: dict[str, Callable[[str], tuple[int, str, bytes]]] = {
            "/metrics": self._metrics,
            "/livez": lambda _accept: (200, _TEXT, b"alive\n"),
            "/readyz": lambda _accept: _page(*self._ready()),
        }

        class Handler(BaseHTTPRequestHandler):
            """Answers one request."""

            def do_GET(self) -> None:
                """Send the page, or 404 and the paths that exist."""
                page = pages.get(self.path.partition("?")[0])
                status, kind, body = (
                    page(self.headers.get("Accept", "")) if page else _page(404, f"{', '.join(pages)} are here\n")
                )
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is http.server's
                """Log at debug level only: probes come every few seconds."""
                log.debug(format, *args)

        return Handler

    def _metrics(self, accept: str) -> tuple[int, str, bytes]:
        encode, kind = choose_encoder(accept)
        return 200, kind, encode(self._registry)


def _page(status: int, text: str) -> tuple[int, str, bytes]:
    return status, _TEXT, text.encode()
