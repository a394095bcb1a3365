"""Place jobs in a queue: translate their options to arguments of the server functions.

Everything that adds single jobs (clients, flows, the scheduler's tick) uses :func:`add_job`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile
from json.encoder import encode_basestring
from operator import itemgetter

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions, milliseconds
from orchestration_queue.options.job import NO_OPTIONS
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, Word
from orchestration_queue.protocol.functions import glidemq, oq1
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["Forms", "JobEncoder", "ParentRef", "add_job", "add_jobs", "new_job"]


@dataclass(frozen=True, slots=True)
class ParentRef:
    """The job that waits for the one being added.

    Attributes:
        keys: Its queue.
        job_id: Its id.
    """

    keys: QueueKeys
    job_id: str

    @classmethod
    def of_member(cls, member: str) -> ParentRef | None:
        """Return the job with this name in another job's ``deps`` or ``parents``; None if it is not a job's."""
        shape = re.fullmatch(r"([^:{}]+):\{([^:{}]+)\}:([^:{}]+)", member)
        return cls(QueueKeys(shape[2], shape[1]), shape[3]) if shape else None

    @property
    def member(self) -> str:
        """Its name in the ``deps`` and ``parents`` of other jobs."""
        return self.keys.member(self.job_id)

    @property
    def deps_key(self) -> str:
        """The key of the parent's dependencies."""
        return self.keys.deps(self.job_id)


def add_job(
    keys: QueueKeys,
    name: str,
    data_text: str,
    options: JobOptions,
    now_ms: int,
    *,
    parent: ParentRef | None = None,
    options_text: str | None = None,
    scheduler_name: str = "",
    skip_events: bool = False,
) -> Call:
    """Place one job, deduplicated if its options say so.

    A parent in the same queue is notified in the same call. A parent in another queue may be on another server of a
    cluster, so the caller adds ``keys.member(id)`` to ``parent.deps_key`` itself.

    Args:
        keys: The queue.
        name: What kind of job it is.
        data_text: The encoded payload.
        options: How it is placed.
        now_ms: Epoch milliseconds by the caller's clock.
        parent: The job that waits for this one.
        options_text: The options as another client wrote them, stored instead of ours.
        scheduler_name: The repeat-after-complete scheduler to notify when the job ends.
        skip_events: Emit no event.

    Returns:
        The call. Its reply is the id, ``duplicate``, ``skipped`` or ``ERR:COST_EXCEEDS_CAPACITY``.

    Raises:
        InvalidOptionError: Both a deduplication and a scheduler's name are given.
    """
    if parent is None and not scheduler_name and not skip_events and options.deduplication is None:
        words = JobEncoder.of(options, now_ms).words(name, data_text, options_text, options.job_id, now_ms)
        return Call(_ADD_JOB, (keys.id, keys.stream, keys.scheduled, keys.events), words, is_function=True)
    record = new_job(name, data_text, options, now_ms, parent=parent, options_text=options_text)._asdict()
    del record["scheduler_name"]
    deps_key = parent.deps_key if parent and parent.keys == keys else None
    if dedup := options.deduplication:
        if scheduler_name:
            raise InvalidOptionError(
                "A repeat-after-complete job cannot have deduplication, because a skipped job never completes; drop it."
            )
        return glidemq.dedup(
            keys,
            parent_deps_key=deps_key,
            dedup_id=dedup.id,
            dedup_ttl_ms=milliseconds(dedup.ttl),
            mode=dedup.mode,
            skip_events=skip_events,
            **record,
        )
    return glidemq.add_job(
        keys, parent_deps_key=deps_key, scheduler_name=scheduler_name, skip_events=skip_events, **record
    )


def new_job(
    name: str,
    data_text: str,
    options: JobOptions,
    now_ms: int,
    *,
    parent: ParentRef | None = None,
    options_text: str | None = None,
    scheduler_name: str = "",
) -> oq1.NewJob:
    """Return one job of a call that adds many; arguments as for :func:`add_job`.

    Such a call supports no deduplication, and notifies no parent: the caller handles both.
    """
    job = JobEncoder.of(options, now_ms).job(name, data_text, options.job_id, now_ms)
    if parent is not None:
        job = job._replace(parent_id=parent.job_id, parent_queue=parent.keys.queue)
    if options_text is not None or scheduler_name:
        job = job._replace(opts=job.opts if options_text is None else options_text, scheduler_name=scheduler_name)
    return job


_common = itemgetter(*(oq1.NewJob._fields.index(name) for name in oq1.JobForm._fields if name != "opts"))


class Forms:
    """The parts that jobs of one call share. Each form is sent once."""

    def __init__(self) -> None:
        self._forms: dict[tuple[object, ...], tuple[int, oq1.NewJob]] = {}

    def job(self, job: oq1.NewJob) -> oq1.BulkJob:
        """Return the parts of a job that are not in its form."""
        # Empty options, which other clients may have written, would mean those of the form.
        form, first = self._forms.setdefault((job.opts == "", *_common(job)), (len(self._forms), job))
        return oq1.BulkJob(form, job.data, "" if job.opts == first.opts else job.opts, job.custom_id)

    def add(self, keys: QueueKeys, jobs: Sequence[oq1.BulkJob], *, skip_events: bool = False) -> Call:
        """Place the jobs in one call.

        Returns:
            The call. Its reply is for each job what :func:`add_job`'s is.
        """
        firsts = (job for _, job in self._forms.values())
        forms = [oq1.JobForm._make(getattr(job, name) for name in oq1.JobForm._fields) for job in firsts]
        return oq1.add_bulk(keys, skip_events=skip_events, forms=forms, jobs=jobs)


def add_jobs(keys: QueueKeys, jobs: Iterable[oq1.NewJob], *, skip_events: bool = False) -> Call:
    """Place many jobs in one call; its reply is for each job what :func:`add_job`'s is."""
    forms = Forms()
    return forms.add(keys, [forms.job(job) for job in jobs], skip_events=skip_events)


_ADD_JOB = "glidemq_addJob"
_ID_AT = oq1.NewJob._fields.index("custom_id")
_AFTER_TIME = oq1.NewJob._fields.index("timestamp_ms") + 1


@dataclass(frozen=True, slots=True)
class JobEncoder:
    """Jobs that differ only in name, data, time and id: everything else is computed once.

    Most jobs share their options, and computing this costs more than sending a job.
    """

    _alike: oq1.NewJob
    _more_options: str
    _words: tuple[Word, ...]
    _words_before_id: tuple[Word, ...]
    _words_after_id: tuple[Word, ...]

    @classmethod
    def of(cls, options: JobOptions, now_ms: int) -> JobEncoder:
        """Return an encoder for jobs that are placed now like this, whatever their ids."""
        if options is NO_OPTIONS:  # most jobs have none, so these need not be hashed
            return _PLAIN
        if options.delay_until is not None:
            options = options.at(now_ms)
        return _encoder(options if options.job_id is None else options.model_copy(update={"job_id": None}))

    def opts(self, job_id: str | None) -> str:
        """Return the options as JSON."""
        if job_id is None:
            return self._alike.opts
        return f'{{"jobId":{encode_basestring(job_id)}{self._more_options}'

    def words(
        self, name: str, data_text: str, options_text: str | None, job_id: str | None, now_ms: int
    ) -> tuple[Word, ...]:
        """Return the arguments of a call for one job, without the last ones if these are the defaults.

        Most jobs need none of them, and each word costs the server as much as 1 % of adding a job.
        """
        if job_id is None:
            return (name, data_text, self._alike.opts if options_text is None else options_text, now_ms, *self._words)
        opts = self.opts(job_id) if options_text is None else options_text
        return (name, data_text, opts, now_ms, *self._words_before_id, job_id, *self._words_after_id)

    def job(self, name: str, data_text: str, job_id: str | None, now_ms: int) -> oq1.NewJob:
        """Return a job for a call that adds many."""
        return self._alike._replace(
            job_name=name, data=data_text, opts=self.opts(job_id), timestamp_ms=now_ms, custom_id=job_id or ""
        )


@lru_cache(maxsize=128)
def _encoder(options: JobOptions) -> JobEncoder:
    ordering = options.ordering
    rate_limit = ordering.rate_limit if ordering else None
    bucket = ordering.token_bucket if ordering else None
    opts = codec.dump_json(options.wire())
    alike = oq1.NewJob(
        job_name="",
        data="",
        opts=opts,
        timestamp_ms=0,
        delay_ms=milliseconds(options.delay),
        priority=options.priority,
        max_attempts=options.attempts,
        ordering_key=ordering.key if ordering else "",
        group_concurrency=ordering.concurrency if ordering else 0,
        group_rate_max=rate_limit.max if rate_limit else 0,
        group_rate_duration_ms=milliseconds(rate_limit.duration) if rate_limit else 0,
        tb_capacity=_thousandths(bucket.capacity) if bucket else 0,
        tb_refill_rate=_thousandths(bucket.refill_rate) if bucket else 0,
        cost=_thousandths(options.cost),
        ttl_ms=milliseconds(options.ttl),
        lifo=options.lifo,
    )
    words = glidemq.add_job(QueueKeys("any"), **alike._asdict()).args
    before_id, after_id = words[_AFTER_TIME:_ID_AT], _without_defaults(words[_ID_AT + 1 :])
    more_options = "}" if opts == "{}" else f",{opts[1:]}"
    return JobEncoder(alike, more_options, _without_defaults(words[_AFTER_TIME:]), before_id, after_id)


def _without_defaults(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words up to the last one that is not its parameter's default."""
    return tuple(reversed(tuple(dropwhile(("", 0).__contains__, reversed(words)))))


def _thousandths(tokens: float) -> int:
    """Return tokens as the wire's millitokens; halves are rounded up, as in JavaScript."""
    return int(tokens * 1000 + 0.5)


_PLAIN = _encoder(NO_OPTIONS)
