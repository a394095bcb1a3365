"""Text from data never drives the terminal: every verb shows names, ids, reasons and logs escaped."""

from __future__ import annotations

import asyncio
import json
import re

import redis

from orchestration_queue.cli.text import clean, dump
from orchestration_queue.client import Alerts, FlowProducer, Queue
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.schedules import Every
from orchestration_queue.worker import ActiveJob, Worker
from tests.integration.test_cli import Oq, commands
from tests.waiting import wait_until

N = "[red]x[/]\u202egpj\x9b\u2066"
"""What a name may hold: markup, an override of direction, a one-byte control sequence, an isolate."""
H = f"{N}\x1b[31m\x07\x1b]0;title\x07"
"""What any other text may hold: a color, a bell, a new title of the window."""
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")

Q, DEAD = f"h{N}", f"h{N}-dead"

SHOWN: list[tuple[str, ...]] = [
    ("queue", "ls"),
    ("queue", "show", Q),
    ("job", "ls", Q),
    ("job", "ls", Q, "--name", N),
    ("job", "show", Q, "doomed"),
    ("job", "why", Q, "doomed"),
    ("job", "show", Q, N),
    ("job", "logs", Q, "doomed"),
    ("job", "watch", Q, "doomed"),
    ("dead", "ls", DEAD),
    ("dead", "ls", DEAD, "--by", "kind"),
    ("dead", "show", DEAD, "1"),
    ("alert", "add", "r", "--kind", "backlog", "--to", N),
    ("alert", "ls"),
    ("alert", "history"),
    ("alert", "silence", N),
    ("alert", "test", N),
    ("alert", "rm", N),
    ("pool", "set", N, "1"),
    ("pool", "ls"),
    ("pool", "show", N),
    ("pool", "rm", N),
    ("share", "set", Q, N, "2"),
    ("share", "ls", Q),
    ("share", "rm", Q, N),
    ("tag", "ls", Q),
    ("tag", "show", Q, N),
    ("tag", "add", Q, N, N),
    ("tag", "drop", Q, N, N),
    ("tag", "retry", Q, N),
    ("tag", "cancel", Q, N),
    ("tag", "rm", Q, N),
    ("tag", "move", Q, N, "--to", "r"),
    ("queue", "move", Q, "--to", "r", "--name", N),
    ("flow", "ls", Q),
    ("flow", "runs", Q, N),
    ("flow", "show", Q, N),
    ("flow", "why", Q, N),
    ("flow", "tree", Q, N),
    ("flow", "tree", Q, N, "--mermaid"),
    ("scheduler", "ls", Q),
    ("scheduler", "show", Q, N),
    ("scheduler", "next", Q, f"{N}2"),
    ("scheduler", "calendar", Q),
    ("queue", "failures", Q),
    ("queue", "events", Q, "--after", "0-0", "--limit", "2"),
    ("queue", "events", Q, "--kind", "log", "--job", "doomed", "--limit", "1"),
    ("queue", "top", "--rounds", "1"),
    ("doctor", Q),
    ("job", "add", Q, N, "--data", dump({H: H}), "--job-id", f"{N}2"),
    ("job", "stream", Q, f"{N}3"),
    ("job", "signal", Q, N, "go"),
    ("job", "priority", Q, N, "0"),
    ("job", "delay", Q, N, "9"),
    ("job", "update", Q, N, dump({H: H})),
    ("job", "forget", Q, N, "a"),
    ("job", "promote", Q, f"{N}3"),
    ("job", "promote", Q, N),
    ("job", "retry", Q, N),
    ("job", "cancel", Q, N),
    ("job", "track", Q, N),
    ("job", "tracked", Q),
    ("job", "untrack", Q, N),
    ("job", "release", Q, N),
    ("job", "depends", Q, N, "--on", f"{N}3", "--off", N),
    ("job", "move", Q, f"{N}3", "--to", f"{N}4"),
    ("job", "rm", Q, "doomed"),
    ("dead", "replay", DEAD, N),
    ("dead", "purge", DEAD),
    ("flow", "pause", Q, N),
    ("flow", "resume", Q, N),
    ("flow", "retry", Q, N),
    ("flow", "cancel", Q, N, "--yes"),
    ("flow", "rm", Q, N),
    ("scheduler", "add", Q, N, "--every", "60"),
    ("scheduler", "run", Q, N),
    ("scheduler", "pause", Q, N),
    ("scheduler", "resume", Q, N),
    ("scheduler", "rm", Q, N),
    ("flow", "submit", f"{N}:{N}"),
    ("flow", "explain", f"{N}:{N}"),
    ("broadcast", "publish", N, "n", "--data", dump(H)),
    ("broadcast", "subscribe", N, N),
    ("broadcast", "ls", N),
    ("broadcast", "unsubscribe", N, N),
    ("usage", f"{N}:"),
    ("queue", "limit", Q),
    ("queue", "config", Q),
    ("queue", "metrics", f"{N}9"),
    ("queue", "stats", f"{N}9"),
    ("queue", "pause", Q),
    ("queue", "resume", Q),
    ("queue", "retry", f"{N}9"),
    ("queue", "clean", Q),
    ("queue", "drain", Q),
    ("queue", "obliterate", Q),
    ("worker", "ls", f"{N}9"),
    *[("worker", verb, f"{N}9", "--all") for verb in ("ping", "pause", "resume", "stop")],
    ("worker", "concurrency", f"{N}9", "4", "--all"),
    ("worker", "run", f"{N}:{N}"),
    ("library", "dump", N),
    ("library", "load", N),
    ("qless", "pause", N),
    ("qless", "resume", N),
    ("qless", "job", "add", N, N, "--id", N, "--tag", N, "--data", dump({H: H})),
    ("qless", "job", "ls", N),
    ("qless", "job", "show", N),
    ("qless", "queues"),
    ("qless", "unfail", N, N),
    ("qless", "job", "cancel", N),
    ("qless", "config", "set", N, N),
    ("qless", "config", "ls"),
    ("qless", "move", N),
    ("qless", "worker", N, "--handler", f"{N}:{N}"),
    ("chasqui", "pause", N),
    ("chasqui", "resume", N),
    ("chasqui", "job", "add", "c", N, "--id", N),
    ("chasqui", "job", "ls", "c"),
    ("chasqui", "job", "cancel", "c", f"{N}2"),
    ("chasqui", "move", N, "--to", "own"),
    ("chasqui", "dead", "show", "c", N),
    ("chasqui", "dead", "purge", N),
    ("chasqui", "scheduler", "rm", "c", N),
    ("chasqui", "worker", "c", f"{N}:{N}"),
    ("token", N, "--scope", "read"),
    ("ui", "--tokens", N),
    ("server", "start", "--url", f"redis://{N}"),
    ("server", "stop", "--url", f"redis://{N}"),
    ("server", "status", "--url", f"redis://{N}"),
]
"""What to run in turn; each prints hostile text somewhere."""
PRINT_NO_DATA = {
    "alert run",
    *("server bench", "flow keep", "dagster daemon", "dagster dev", "dagster sweep", "dagster worker"),
    "airflow worker",
    *("qless failed", "qless events", "qless workers", "qless check"),
    *("chasqui inspect", "chasqui events", "chasqui dead ls", "chasqui dead replay", "chasqui scheduler ls"),
    *("library status", "qless script", "spark archive"),
}
"""Verbs that print nothing that a client wrote, or only through the same table as another verb."""


def test_every_verb_shows_hostile_text_escaped(server_url: str, raw: redis.Redis) -> None:
    oq = Oq(server_url)
    with Queue(Q, url=server_url) as queue, FlowProducer(url=server_url) as flows:
        doomed = queue.add(N, {H: H}, JobOptions(job_id="doomed"))
        asyncio.run(_fail(queue))
        doomed.log(H)
        queue.add(N, {}, JobOptions(job_id=N, delay=3600))
        queue.schedulers.upsert(N, Every(3600))
        flows.submit(Dag(N, [Node(N), Node("n", deps=(N,))], Q), flow_id=N)
        raw.zadd(queue.keys.tags, {H: 1})
        with Alerts(url=server_url) as alerts:
            alerts.set("r", {"kind": "backlog", "to": ["ops"]})
            alerts.silence("r", 3600, by=H)
        raw.xadd(queue.keys.alerts("history"), {"rule": H, "event": H, "receiver": H, "text": H})
        raw.hset(queue.keys.steps("doomed"), f"h:{H}", "r 1 1 1 1 0 1")
        raw.hset(queue.keys.job("doomed"), mapping={"name": H, "steps": 1})  # as a careless client would
    wrong = []
    for arguments in SHOWN:
        result = oq(*arguments, answer="n\n")
        printed = result.stdout + result.stderr
        if UNSAFE.search(printed) or "[red]x" not in printed or isinstance(result.exception, Exception):
            wrong.append((arguments[:2], printed, result.exception))
    assert wrong == []
    raw.delete(*raw.scan_iter("ql:*"))  # of qless, which keeps them for good
    as_json = oq("job", "show", Q, "doomed", "--json").stdout
    assert not UNSAFE.search(as_json)
    assert json.loads(as_json)["data"] == {H: H}, "escaped, but the same to a program"


def test_every_verb_has_a_hostile_case() -> None:
    verbs = {" ".join(command) for command in commands()}
    shown = {verb for verb in verbs if any(" ".join(case).startswith(verb) for case in SHOWN)}
    assert verbs - shown == PRINT_NO_DATA


async def _fail(queue: Queue) -> None:
    def handle(job: ActiveJob) -> None:
        job.update_progress({"percent": 50, "text": H})
        raise ValueError(H)

    worker = Worker(queue.name, handle, url=str(queue.url), options=WorkerOptions(dead_letter_queue=DEAD))
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: queue.counts().failed == 1, "the job to fail")
    worker.stop()
    await running


def test_unsafe_characters_are_spelled_out() -> None:
    assert clean("a\x1b[0m\u202eb\x9b\ud800\U000e0001\r\n") == r"a\x1b[0m\u202eb\x9b\ud800\U000e0001\r\n"
    assert clean("two\nlines\t!", lines=True) == "two\nlines\t!"
    assert clean("zoë 東京 👩‍🚀 می‌خواهم") == "zoë 東京 👩‍🚀 می‌خواهم"
    assert dump("\x1b\u202e\U000e0001ë") == r'"\u001b\u202e\udb40\udc01ë"'
