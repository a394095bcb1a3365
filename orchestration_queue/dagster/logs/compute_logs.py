"""Store the standard output and error of steps on the queue's server, so that the UI shows them while they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Self

import dagster as dg
from dagster import BoolSource, IntSource, StringSource

from orchestration_queue._logging import get_logger
from orchestration_queue.dagster._compat import (
    IO_TYPE_EXTENSION,
    CapturedLogContext,
    CapturedLogSubscription,
    CloudStorageComputeLogManager,
    ComputeIOType,
    ConfigurableClass,
    ConfigurableClassData,
    LocalComputeLogManager,
    error_log_listeners,
)
from orchestration_queue.dagster.logs.capture import CapturedOutput, OutputReader, claim_output, redirect
from orchestration_queue.dagster.logs.store import CHUNK, LiveTail, LogKey, LogStore, LogSubscription, Uploads
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, TransportError
from orchestration_queue.options import milliseconds, name_problem
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection, parse_url

__all__ = ["StreamComputeLogManager"]

_logger = get_logger(__name__)
_DEFAULT_BYTES = 4 * 1024 * 1024
_DEFAULT_TTL = timedelta(days=7)
_OUTPUTS = {"out": 1, "err": 2}


class StreamComputeLogManager(CloudStorageComputeLogManager[dg.DagsterInstance], ConfigurableClass):
    """Stores compute logs on the queue's server, so that the UI can follow them while they are written.

    A step's output goes directly to two files, without helper processes. A thread sends new output to the server and,
    if configured, to the process's own output. If the server is unreachable, the step continues: output is sent later,
    or stays in the files.

    In ``dagster.yaml``::

        compute_logs:
          module: orchestration_queue.dagster.logs
          class: StreamComputeLogManager
          config:
            url: {env: OQ_URL}

    Args:
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        prefix: First part of every key.
        local_dir: The directory of the files while they are written; default: the system's temporary directory.
        keep_local_files: Keep the files afterwards; the UI shows them after the server has expired the log.
        max_bytes: The server keeps this many bytes of the end of each log. Default: 4 MiB.
        ttl_seconds: How long the server keeps a log after its last byte. Default: one week.
        echo: Also write the output to the process's own, such as a container's log.
        inst_data: Dagster's own.

    Raises:
        InvalidNameError: The prefix can't be part of a key.
        InvalidOptionError: ``max_bytes`` is below 65,536, or ``ttl_seconds`` below 60.
        UsageError: The URL is invalid.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        local_dir: str | None = None,
        keep_local_files: bool = False,
        max_bytes: int = _DEFAULT_BYTES,
        ttl_seconds: int = int(_DEFAULT_TTL.total_seconds()),
        echo: bool = True,
        inst_data: ConfigurableClassData | None = None,
    ) -> None:
        if problem := name_problem(prefix):
            raise InvalidNameError(
                f"compute_logs: the prefix {prefix!r} {problem}; use letters, digits, '.', '-' and '_'."
            )
        if max_bytes < CHUNK:
            raise InvalidOptionError(
                f"compute_logs: `max_bytes` must be at least {CHUNK:,}, the size of one entry, got {max_bytes:,}."
            )
        if ttl_seconds < 60:
            raise InvalidOptionError(
                f"compute_logs: `ttl_seconds` must be at least 60, got {ttl_seconds}; logs would expire before anyone "
                "reads them."
            )
        self._url = parse_url(url)
        self._inst_data = inst_data
        self._echo = echo
        self._keeps_files = keep_local_files
        self._max_bytes = max_bytes
        self._connection: Connection | None = None
        ttl_ms = milliseconds(timedelta(seconds=ttl_seconds))
        self._store = LogStore(self._connect, prefix, max_bytes, ttl_ms)
        self._local = LocalComputeLogManager(
            local_dir or str(Path(gettempdir(), f"orchestration_queue_logs_{os.getuid()}"))
        )
        self._tail = LiveTail(self)

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """Dagster's data for creating another instance."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, dg.Field]:
        """Return the schema of the configuration in ``dagster.yaml``."""
        fields: dict[str, Any] = {
            "url": StringSource,
            "prefix": StringSource,
            "local_dir": StringSource,
            "keep_local_files": BoolSource,
            "max_bytes": IntSource,
            "ttl_seconds": IntSource,
            "echo": BoolSource,
        }
        return {name: dg.Field(kind, is_required=False) for name, kind in fields.items()}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:
        """Create one from the configuration in ``dagster.yaml``."""
        return cls(inst_data=inst_data, **config_value)

    def _connect(self) -> Connection:
        """Open the connection on first use: every process with the instance has this manager."""
        if self._connection is None:
            # A short timeout, because the end of the step waits for it.
            self._connection = Connection.open(self._url, connect_timeout=timedelta(seconds=1), libraries=())
        return self._connection

    @contextmanager
    def capture_logs(self, log_key: LogKey) -> Generator[CapturedLogContext, None, None]:
        """Capture the output of this process while the block runs."""
        with claim_output() as was_free:
            if not was_free:
                _logger.warning("Not capturing %s separately: another step runs in its process.", "/".join(log_key))
                yield CapturedLogContext(log_key)
                return
            with self._capture(log_key):
                yield CapturedLogContext(log_key)

    @contextmanager
    def _capture(self, log_key: LogKey) -> Iterator[None]:
        paths = {name: self._path(log_key, name) for name in _OUTPUTS}
        uploads = Uploads(self._store, log_key, [name for name, path in paths.items() if not path.exists()])
        with ExitStack() as stack:
            streams = {"out": sys.stdout, "err": sys.stderr}
            outputs = []
            for name, path in paths.items():
                file = _open(path)
                stack.callback(os.close, file)
                begin = os.fstat(file).st_size
                before = stack.enter_context(redirect(streams[name], _OUTPUTS[name], file))
                outputs.append(CapturedOutput(file, 0, partial(uploads.take, name)))
                if self._echo and before is not None:
                    outputs.append(CapturedOutput(file, begin, partial(_write, before)))
            for listener in error_log_listeners:
                listener(str(paths["err"]))
            reader = OutputReader(outputs, self._max_bytes)
            reader.start()
            try:
                yield
            finally:
                # Before the reader's last look: what is still in Python's buffers is not in the files.
                for stream in streams.values():
                    stream.flush()
                reader.stop()
                fault = reader.fault
        self._conclude(log_key, fault)

    def _conclude(self, log_key: LogKey, fault: Exception | None = None) -> None:
        """Mark a log as complete, and remove its files unless the server lacks some of their output."""
        try:
            if fault is not None:
                raise fault
            self._store.complete(log_key)
        except Exception as reason:  # the step itself has succeeded
            _logger.warning(
                "The logs of %s stay in %s: %s", "/".join(log_key), self._path(log_key, "err").parent, reason
            )
        else:
            if not self._keeps_files:
                self._local.delete_logs(log_key=log_key)
                return
        Path(self._local.complete_artifact_path(log_key)).touch()

    @contextmanager
    def open_log_stream(self, log_key: LogKey, io_type: ComputeIOType) -> Iterator[Any]:
        """Open a file for a log, such as a sensor's; store it on the server when the block ends."""
        path = self._path(log_key, IO_TYPE_EXTENSION[io_type])
        uploads = Uploads(self._store, log_key, [] if path.exists() else [IO_TYPE_EXTENSION[io_type]])
        with self._local.open_log_stream(log_key, io_type) as file:
            yield file
        with path.open("rb") as written:
            output = CapturedOutput(written.fileno(), 0, partial(uploads.take, IO_TYPE_EXTENSION[io_type]))
            fault: Exception | None = None
            try:
                output.pass_on(self._max_bytes)
            except Exception as reason:  # _conclude logs it
                fault = reason
        self._conclude(log_key, fault)

    def is_capture_complete(self, log_key: LogKey) -> bool:
        """Return whether the log is complete."""
        with suppress(TransportError):
            if self._store.is_complete(log_key):
                return True
        return self._local.is_capture_complete(log_key)

    def get_log_data_for_type(
        self, log_key: LogKey, io_type: ComputeIOType, offset: int, max_bytes: int | None
    ) -> tuple[bytes | None, int]:
        """Return a log's bytes from an offset, and the next offset; read the files if the server has no log."""
        name = IO_TYPE_EXTENSION[io_type]
        try:
            data, end = self._store.read(log_key, name, offset, max_bytes)
        except TransportError:
            if not self._path(log_key, name).exists():
                raise
            data, end = None, offset
        if data is not None:
            return data, end
        data, end = self._local.get_log_data_for_type(log_key, io_type, offset, max_bytes)
        return data, end

    def get_log_keys_for_log_key_prefix(self, log_key_prefix: LogKey, io_type: ComputeIOType) -> Sequence[list[str]]:
        """Return the logs right under a prefix."""
        name, depth = IO_TYPE_EXTENSION[io_type], len(log_key_prefix) + 1
        below = [key for key in self._store.keys_below(log_key_prefix) if len(key) == depth]
        return [list(key) for key in below if self._store.exists(key, name)]

    def delete_logs(self, log_key: LogKey | None = None, prefix: LogKey | None = None) -> None:
        """Remove one log, or all under a prefix; from the files, too."""
        self._local.delete_logs(log_key=log_key, prefix=prefix)
        self._store.delete([log_key] if log_key else self._store.keys_below(prefix or ()))

    def subscribe(self, log_key: LogKey, cursor: str | None = None) -> CapturedLogSubscription:
        """Subscribe to new output, as the UI does."""
        subscription = LogSubscription(self, log_key, cursor)
        self._tail.add(subscription)
        return subscription

    def unsubscribe(self, subscription: CapturedLogSubscription) -> None:
        """End a subscription."""
        self._tail.remove(subscription)

    def dispose(self) -> None:
        """Stop following logs, and disconnect."""
        self._tail.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _path(self, log_key: LogKey, name: str) -> Path:
        return Path(self._local.get_captured_local_path(log_key, name))

    # Methods that Dagster's webserver calls to offer a log for download.

    @property
    def local_manager(self) -> LocalComputeLogManager:
        """The manager of the local files."""
        return self._local

    @property
    def upload_interval(self) -> int | None:
        """Return None: new output is stored a few times a second, without an interval to configure."""
        return None

    def download_url_for_type(self, log_key: LogKey, io_type: ComputeIOType) -> str | None:
        """Return the webserver's URL of the log."""
        url: str = self._local.get_captured_log_download_url(log_key, io_type)
        return url

    def display_path_for_type(self, log_key: LogKey, io_type: ComputeIOType) -> str:
        """Return the place of the log, for display."""
        return f"{self._url}, {'/'.join(log_key)}.{IO_TYPE_EXTENSION[io_type]}"

    def cloud_storage_has_logs(
        self,
        log_key: LogKey,
        io_type: ComputeIOType,
        partial: bool = False,  # noqa: ARG002  there are no others
    ) -> bool:
        """Return whether the server has output of the log."""
        return self._store.exists(log_key, IO_TYPE_EXTENSION[io_type])

    def has_local_file(self, log_key: LogKey, io_type: ComputeIOType) -> bool:
        """Return whether only the file exists: a log on the server may have grown since it was downloaded."""
        return self._path(log_key, IO_TYPE_EXTENSION[io_type]).exists() and not self.cloud_storage_has_logs(
            log_key, io_type
        )

    def upload_to_cloud_storage(self, log_key: LogKey, io_type: ComputeIOType, partial: bool = False) -> None:
        """Do nothing: output is stored while it is written."""

    def download_from_cloud_storage(
        self,
        log_key: LogKey,
        io_type: ComputeIOType,
        partial: bool = False,  # noqa: ARG002  there are no others
    ) -> None:
        """Write the server's log to the file."""
        path = self._path(log_key, IO_TYPE_EXTENSION[io_type])
        data, _ = self._store.read(log_key, IO_TYPE_EXTENSION[io_type], 0, None)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data or b"")


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    # For appending, because children of the step may write as well.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)


def _write(file: int, _offset: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
