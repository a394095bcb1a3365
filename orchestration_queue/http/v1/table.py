"""The own routes as data."""

from __future__ import annotations

from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.v1 import (
    dead_letters,
    findings,
    flows,
    jobs,
    pools,
    schedulers,
    settings,
    statistics,
    tags,
    taking,
    workers,
)

__all__ = ["OWN_ROUTES"]

_READ, _WORK, _ACT, _ADMIN = Scope.READ, Scope.WORK, Scope.ACT, Scope.ADMIN
_Q = "/v1/queues/:name"
_J, _D, _F, _S = f"{_Q}/jobs", f"{_Q}/dead-letters", f"{_Q}/flows", f"{_Q}/schedulers"
_T, _W, _TAKEN = f"{_Q}/tags", f"{_Q}/workers", f"{_Q}/taken/:id"

OWN_ROUTES: tuple[Route, ...] = (
    Route("GET", f"{_Q}/search", _READ, jobs.search_jobs),
    Route("GET", f"{_Q}/failures", _READ, jobs.list_failures),
    Route("POST", f"{_Q}/failures/retry", _ACT, jobs.retry_failures),
    Route("GET", f"{_J}/:id/explanation", _READ, jobs.explain_job),
    Route("GET", f"{_J}/:id/history", _READ, jobs.job_history),
    Route("GET", _D, _READ, dead_letters.list_letters),
    Route("DELETE", _D, _ADMIN, dead_letters.drop_letters),
    Route("POST", f"{_D}/replay", _ACT, dead_letters.replay_letters),
    Route("GET", f"{_D}/:id", _READ, dead_letters.show_letter),
    Route("DELETE", f"{_D}/:id", _ACT, dead_letters.drop_letter),
    Route("POST", f"{_D}/:id/replay", _ACT, dead_letters.replay_letter),
    Route("GET", _F, _READ, flows.list_flows),
    Route("GET", f"{_F}/:id", _READ, flows.show_flow),
    Route("GET", f"{_F}/:id/tree", _READ, flows.show_tree),
    Route("GET", f"{_F}/:id/explanation", _READ, flows.explain_flow),
    Route("POST", f"{_F}/:id/cancel", _ACT, flows.cancel_flow),
    Route("POST", f"{_F}/:id/retry", _ACT, flows.retry_flow),
    Route("POST", f"{_F}/:id/pause", _ACT, flows.pause_flow),
    Route("POST", f"{_F}/:id/resume", _ACT, flows.resume_flow),
    Route("GET", _S, _READ, schedulers.list_planned),
    Route("GET", f"{_S}/:id", _READ, schedulers.show_scheduler),
    Route("PATCH", f"{_S}/:id", _ACT, schedulers.change_scheduler),
    Route("POST", f"{_S}/:id/preview", _READ, schedulers.preview_scheduler),
    Route("POST", f"{_S}/:id/run", _ACT, schedulers.run_scheduler),
    Route("POST", f"{_S}/:id/pause", _ACT, schedulers.pause_scheduler),
    Route("POST", f"{_S}/:id/resume", _ACT, schedulers.resume_scheduler),
    Route("GET", f"{_Q}/settings", _READ, settings.show_settings),
    Route("PATCH", f"{_Q}/settings", _ACT, settings.change_settings),
    Route("GET", f"{_Q}/statistics", _READ, statistics.show_statistics),
    Route("POST", f"{_J}/:id/tags", _ACT, tags.tag_job),
    Route("GET", _T, _READ, tags.list_tags),
    Route("GET", f"{_T}/:tag/jobs", _READ, tags.list_tagged),
    Route("POST", f"{_T}/:tag/retry", _ACT, tags.retry_tagged),
    Route("POST", f"{_T}/:tag/cancel", _ACT, tags.cancel_tagged),
    Route("POST", f"{_T}/:tag/remove", _ADMIN, tags.remove_tagged),
    Route("GET", _W, _READ, workers.list_workers),
    Route("POST", f"{_W}/stop", _ADMIN, workers.stop_workers),
    Route("POST", f"{_W}/:verb", _ACT, workers.control_workers),
    Route("POST", f"{_Q}/take", _WORK, taking.take_jobs),
    Route("POST", f"{_TAKEN}/complete", _WORK, taking.complete_taken),
    Route("POST", f"{_TAKEN}/fail", _WORK, taking.fail_taken),
    Route("POST", f"{_TAKEN}/retry", _WORK, taking.retry_taken),
    Route("POST", f"{_TAKEN}/release", _WORK, taking.release_taken),
    Route("POST", f"{_TAKEN}/heartbeat", _WORK, taking.heartbeat_taken),
    Route("GET", "/v1/pools", _READ, pools.list_pools),
    Route("GET", "/v1/pools/:pool", _READ, pools.show_pool),
    Route("PUT", "/v1/pools/:pool", _ACT, pools.set_pool),
    Route("DELETE", "/v1/pools/:pool", _ADMIN, pools.remove_pool),
    Route("GET", f"{_Q}/doctor", _READ, findings.diagnose_queue),
    Route("GET", "/v1/doctor", _READ, findings.diagnose),
    Route("POST", "/v1/doctor/fix", _ADMIN, findings.fix_finding),
)
