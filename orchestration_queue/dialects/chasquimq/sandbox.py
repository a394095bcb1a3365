"""How ChasquiMQ's jobs travel to sandbox processes: as MessagePack, so that bytes stay bytes."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from orchestration_queue.dialects.chasquimq.jobs import ChasquiJob
from orchestration_queue.dialects.chasquimq.packing import pack, unpack
from orchestration_queue.dialects.sandbox import JobForm
from orchestration_queue.errors import PayloadError, UnrecoverableError

__all__ = ["FORM"]


def _dump(job: ChasquiJob) -> str:
    return b64encode(pack(asdict(job) | {"created_at": job.created_at.timestamp()})).decode()


def _load(packed: str) -> ChasquiJob:
    fields = unpack(b64decode(packed))
    return ChasquiJob(**fields | {"created_at": datetime.fromtimestamp(fields["created_at"], UTC)})


def _dump_result(returned: Any) -> str:
    try:
        return b64encode(pack(returned, "The job's result")).decode()
    except PayloadError as error:  # as a worker without sandboxes ends such a job
        raise UnrecoverableError(str(error)) from None


FORM = JobForm(
    home=__name__,
    id_of=lambda job: job.id,
    dump=_dump,
    load=_load,
    dump_result=_dump_result,
    load_result=lambda returned: unpack(b64decode(returned)),
)
