"""The durable steps of one attempt: the names it has used, the outcomes that are stored, and those that it stores."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from orchestration_queue.errors import PayloadError, UnrecoverableError, UsageError
from orchestration_queue.options import Backoff, StepOptions, seconds
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.lease import Postponement, Suspension
from orchestration_queue.protocol.operations.steps import (
    COUNTER,
    MOST_STEPS,
    VERSION,
    JobStep,
    StepKind,
    StoredOutcome,
    check_step_name,
    full_error,
    page_after,
)
from orchestration_queue.protocol.operations.suspension import Signal
from orchestration_queue.protocol.outcome import is_unrecoverable
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server.clock import epoch_ms, now_ms
from orchestration_queue.worker.active_job import CodeVersion, JobInterrupt
from orchestration_queue.worker.observability import span
from orchestration_queue.worker.step_errors import dump_error, rebuild_error

__all__ = ["StepBook", "StepRun", "call_step", "decorate_step", "trace_step"]

_DEFAULT_BACKOFF = Backoff()
_PUT_BACK_MS = 1_000
_WAS = {
    StepKind.RETURNED: "was a function",
    StepKind.RAISED: "was a function",
    StepKind.SLEEPS: "was a sleep",
    StepKind.SIGNALED: "was a wait for a signal",
    StepKind.TIMED_OUT: "was a wait for a signal",
    StepKind.WAITS: "was a wait for a signal",
    StepKind.CALLS: "was a call",
    StepKind.COMPLETED: "was a call",
    StepKind.FAILED: "was a call",
}


class StepStore(Protocol):
    """Where a running job's steps are stored: by its worker."""

    @property
    def id(self) -> str:
        """The job's id."""

    @property
    def record(self) -> JobRecord:
        """The job when it started."""

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals that the job has received."""

    @property
    def version(self) -> CodeVersion | None:
        """The version of the code that runs it; None if that does not matter."""

    @property
    def should_stop(self) -> bool:
        """Whether the handler should end soon."""

    async def _read_steps(self) -> list[JobStep]:
        """Return all stored steps, without results."""

    async def _read_step_results(self, names: Sequence[str]) -> list[str]:
        """Return the encoded results of stored steps."""

    async def _store_step(
        self, name: str, kind: StepKind, duration_ms: int = 0, until_ms: int = 0, result: str = ""
    ) -> StoredOutcome:
        """Store how a step ended, unless an outcome is stored; return the outcome that counts."""


class StepBook:
    """The steps of one attempt. All methods run on one event loop.

    What earlier attempts stored is read when the first step is used, and only if the record says that there are steps;
    results are read a page at a time.

    Args:
        store: The job.
    """

    def __init__(self, store: StepStore) -> None:
        self._store = store
        self._used: set[str] = set()
        self._stored: dict[str, JobStep] | None = None
        self._results: dict[str, str] = {}
        self._reading = asyncio.Lock()

    @property
    def should_stop(self) -> bool:
        """Whether the handler should end soon."""
        return self._store.should_stop

    async def find(self, name: str, *kinds: StepKind) -> StoredOutcome | None:
        """Reserve a step's name for this attempt, and return its stored outcome; None if it has none.

        Args:
            name: The step.
            kinds: The outcomes that this use of the name can have.

        Raises:
            UsageError: The name is invalid, this attempt has used it, or an earlier one used it for something else.
            StateError: The name is new, and the job has 10,000 steps, with those that run.
            UnrecoverableError: Another version of the code has stored the job's steps.
            JobInterrupt: The same, and the job is to wait for a worker of that version.
        """
        if name == VERSION:
            raise UsageError(f"Step {VERSION!r} has the version of the code; give the step another name.")
        if check_step_name(name) in self._used:
            raise UsageError(
                f"Step {name!r} of job {self._store.id!r} was already used in this attempt, and its name identifies "
                f"its result; give each its own, such as f'{name}-{{n}}' in a loop."
            )
        # Before the lookup: steps of one job may run concurrently.
        self._used.add(name)
        try:
            async with self._reading:
                found = await self._look_up(name)
            if found is None and self._is_full():
                raise full_error(self._store.id, name)
        except BaseException:
            self.release(name)
            raise
        if found is not None and found.step.kind not in kinds:
            raise UsageError(
                f"Step {name!r} of job {self._store.id!r} {_WAS[found.step.kind]} in an earlier attempt, and is "
                "something else now; give it another name."
            )
        return found

    def _is_full(self) -> bool:
        """Return whether more names are used or stored than a job can have. Most jobs' are few, and are not united."""
        stored = self._stored or {}
        return len(self._used) + len(stored) > MOST_STEPS and len(self._used | stored.keys()) > MOST_STEPS

    async def find_all(self, names: Sequence[str], *kinds: StepKind) -> list[StoredOutcome | None]:
        """Reserve several names as :meth:`find` does, or none of them."""
        found: dict[str, StoredOutcome | None] = {}
        try:
            for name in names:
                found[name] = await self.find(name, *kinds)
        except BaseException:
            for name in found:
                self.release(name)
            raise
        return list(found.values())

    async def _look_up(self, name: str) -> StoredOutcome | None:
        if self._stored is None:
            has_steps = COUNTER in self._store.record.fields
            stored = {step.name: step for step in await self._store._read_steps()} if has_steps else {}
            if self._store.version is not None:
                await self._check_version(self._store.version, stored)
            self._stored = stored
        if (step := self._stored.get(name)) is None:
            return None
        if name not in self._results:
            names = [each.name for each in page_after(self._stored.values(), step)]
            self._results.update(zip(names, await self._store._read_step_results(names), strict=True))
        # Each name is used once per attempt, so its result need not be kept.
        return StoredOutcome(step, self._results.pop(name))

    async def _check_version(self, wanted: CodeVersion, stored: dict[str, JobStep]) -> None:
        """Store the version before the first step, as one of them; continue only what the same version has stored."""
        if VERSION in stored:
            (result,) = await self._store._read_step_results([VERSION])
        else:
            result = codec.encode(wanted.name, "The code's version")
            outcome = await self.store(VERSION, StepKind.RETURNED, result=result)
            stored[VERSION], result = outcome.step, outcome.result or result
        version = codec.decode(result, "The code's version")
        if version == wanted.name:
            return
        if wanted.otherwise == "wait":
            raise JobInterrupt(partial(Postponement, until_ms=now_ms() + _PUT_BACK_MS))
        raise UnrecoverableError(
            f"Version {version!r} of the code has stored steps of job {self._store.id!r}, and this worker has version "
            f"{wanted.name!r}; retry the job where that version runs, or forget its step {VERSION!r} to continue here."
        )

    def release(self, name: str) -> None:
        """Let a name be used again: its step ended without an outcome."""
        self._used.discard(name)

    async def store(
        self, name: str, kind: StepKind, *, duration_ms: int = 0, until_ms: int = 0, result: str = ""
    ) -> StoredOutcome:
        """Store how a step ended, and return the outcome that counts, always with its result."""
        found = await self._store._store_step(name, kind, duration_ms, until_ms, result)
        return found if found.result is not None else StoredOutcome(found.step, result)

    async def sleep(self, name: str, until_ms: int) -> None:
        """Return once a time has passed; end the attempt until then. The first time that is asked for counts.

        Raises:
            JobInterrupt: The time has not come.
        """
        found = await self.find(name, StepKind.SLEEPS)
        found = found or await self.store(name, StepKind.SLEEPS, until_ms=until_ms)
        if self._left_ms(found.step) > 0:
            raise JobInterrupt(partial(Postponement, until_ms=_until_ms(found.step)))

    async def wait(self, name: str, timeout_ms: int) -> Any:
        """Return the data of the first signal of this name; end the attempt until it has arrived, or the time is over.

        Args:
            name: The step, and the signal's name.
            timeout_ms: How long, from the first attempt that waits; 0 forever.

        Raises:
            TimeoutError: The time is over.
            JobInterrupt: There is no such signal, and the time is not over.
        """
        found = await self.find(name, StepKind.SIGNALED, StepKind.TIMED_OUT, StepKind.WAITS)
        if found is None or found.step.kind is StepKind.WAITS:
            found = await self._look_for_signal(name, timeout_ms, found)
        if found.step.kind is StepKind.TIMED_OUT:
            raise TimeoutError(
                f"Step {name!r} of job {self._store.id!r} received no signal {name!r} by "
                f"{found.step.until:%Y-%m-%d %H:%M:%S} UTC."
            )
        return codec.decode(found.result or "null", f"The data of signal {name!r}")

    async def _look_for_signal(self, name: str, timeout_ms: int, waiting: StoredOutcome | None) -> StoredOutcome:
        since = waiting.step.ended_at if waiting else None
        waited_ms = max(0, now_ms() - epoch_ms(since)) if since else 0
        signal = next((signal for signal in self._store.signals if signal.name == name), None)
        if signal is not None:
            data = codec.encode(signal.data, f"The data of signal {name!r}")
            return await self.store(name, StepKind.SIGNALED, duration_ms=waited_ms, result=data)
        if waiting is None:
            until_ms = now_ms() + timeout_ms if timeout_ms else 0
            waiting = await self.store(name, StepKind.WAITS, until_ms=until_ms)
        left_ms = self._left_ms(waiting.step) if waiting.step.until else 0
        if waiting.step.until and left_ms <= 0:
            until_ms = _until_ms(waiting.step)
            return await self.store(name, StepKind.TIMED_OUT, duration_ms=waited_ms, until_ms=until_ms)
        reason = f"Step {name!r} waits for signal {name!r}"
        raise JobInterrupt(partial(Suspension, reason=reason, timeout_ms=left_ms, resumes=True))

    def _left_ms(self, step: JobStep) -> int:
        """Return how long a step still sleeps or waits.

        The server's clock, by which the attempt started, counts, too: where this machine's is behind, the job would
        start and end again until both agree.
        """
        return _until_ms(step) - max(now_ms(), int(self._store.record.fields["processedOn"]))


class StepRun:
    """The runs of one step's function in one attempt, from the lookup of its name to its outcome.

    Args:
        book: The attempt's steps.
        name: The step.
        options: How it runs: its options, or a dict of them.

    Raises:
        InvalidOptionError: An option is invalid.
        UsageError: There is no such codec.
    """

    def __init__(self, book: StepBook, name: str, options: StepOptions | Mapping[str, Any] | None) -> None:
        self._book = book
        self._name = name
        self._options = StepOptions.coerce(options, "options")
        self._codec = codec.find_codec(self._options.codec)
        self._failures = 0
        self._began = 0.0

    @property
    def timeout_s(self) -> float | None:
        """How long one run may take."""
        return None if self._options.timeout is None else seconds(self._options.timeout)

    async def find(self) -> StoredOutcome | None:
        """Reserve the name and return the stored outcome; None if the function must run."""
        return await self._book.find(self._name, StepKind.RETURNED, StepKind.RAISED)

    def replay(self, found: StoredOutcome) -> Any:
        """Return or raise the stored outcome."""
        stored = codec.decode(found.result or "null", f"The result of step {self._name!r}")
        if found.step.kind is StepKind.RETURNED:
            return stored
        error = rebuild_error(stored, self._options.store_errors)
        error.add_note(f"Stored by step {self._name!r} in attempt {found.step.attempt}.")
        raise error

    def begin(self) -> None:
        """Note that the function runs now."""
        self._began = time.monotonic()

    async def returned(self, result: Any) -> Any:
        """Store the function's result, and return it as later attempts will get it.

        Raises:
            UnrecoverableError: It can't be stored: another attempt can't help.
        """
        try:
            encoded = codec.encode(result, f"The result of step {self._name!r}", self._codec)
        except PayloadError as error:
            raise UnrecoverableError(str(error)) from error
        return self.replay(await self._store(StepKind.RETURNED, encoded))

    async def failed(self, error: Exception) -> float:
        """Return how many seconds to wait before the next run.

        Raises:
            Exception: The error that was passed, if there is no next run; it is stored first if that was asked for.
        """
        base = next((base for base in self._options.store_errors if isinstance(error, base)), None)
        if base is not None:
            await self._store(StepKind.RAISED, dump_error(error, base))
            raise error
        self._failures += 1
        if self._failures >= self._options.attempts or self._book.should_stop or is_unrecoverable(error):
            self._book.release(self._name)
            raise error
        backoff = self._options.backoff or _DEFAULT_BACKOFF
        return backoff.wait_ms(self._failures, random.random()) / 1000  # noqa: S311  jitter, not a secret

    async def _store(self, kind: StepKind, result: str) -> StoredOutcome:
        duration_ms = int((time.monotonic() - self._began) * 1000)
        return await self._book.store(self._name, kind, duration_ms=duration_ms, result=result)


async def call_step(
    name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], limit_s: float | None
) -> Any:
    """Run a step's function on the event loop, and await its result if it is awaitable.

    Raises:
        TimeoutError: It took longer than its limit.
    """
    try:
        async with asyncio.timeout(limit_s) as limit:
            with trace_step(name):
                result = function(*args, **kwargs)
                return await result if inspect.isawaitable(result) else result
    except TimeoutError as error:
        # The function may raise a TimeoutError of its own.
        if limit.expired():
            raise TimeoutError(f"Step {name!r} took longer than its timeout of {limit_s:g} s.") from error
        raise


def decorate_step(
    step: Callable[..., Any],
    name: str,
    args: Sequence[Any],
    options: StepOptions | Mapping[str, Any] | None,
    kwargs: Mapping[str, Any],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes the calls of a function a step.

    Raises:
        UsageError: There are arguments, but no function.
    """
    if args or kwargs:
        raise UsageError(f"Step {name!r} has arguments, but no function; pass it before them.")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            # The function's own parameter may have the name `options`.
            return step(name, functools.partial(function, *args, **kwargs), options=options)

        return call

    return decorate


def trace_step(name: str) -> AbstractContextManager[None]:
    """Make a block the span of a step."""
    return span(f"step {name}", {"orchestration_queue.step": name})


def _until_ms(step: JobStep) -> int:
    return epoch_ms(step.until) if step.until else 0
