"""`oq dead`: the jobs that failed for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from orchestration_queue.cli.common import (
    JsonFlag,
    Prefix,
    QueueName,
    Url,
    Yes,
    ask,
    moment_text,
    name_fields,
    show_json,
    show_table,
    time_text,
)
from orchestration_queue.cli.text import dump, print_line
from orchestration_queue.cli.verbs import Details, Done, format_count, open_queue, verb
from orchestration_queue.client import Queue
from orchestration_queue.errors import JobNotFoundError, UsageError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.operations.dead_letters import LetterGroup, group_letters

__all__ = ["app"]

app = typer.Typer(help="Inspect and replay dead letters: jobs that failed for good.", no_args_is_help=True)

LetterId = Annotated[str, typer.Argument(help="The dead letter's id.")]


@app.command("ls")
def ls(
    queue: QueueName,
    limit: Annotated[int, typer.Option(help="Maximum number of dead letters, oldest first.", min=1)] = 50,
    by: Annotated[Literal["kind"] | None, typer.Option(help="Count the dead letters by kind of failure.")] = None,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """List the dead letters of a queue."""
    with open_queue(queue, url, prefix) as client:
        letters = client.dead_letters.list(limit=limit)
    groups = _by_kind(group_letters(letters, "kind")) if by else []
    if as_json:
        show_json(groups if by else [asdict(letter) for letter in letters])
        return
    if groups:
        show_table(("kind", "letters", "latest", "reason"), [list(map(str, row.values())) for row in groups])
        return
    if not letters:
        print_line(f"Queue {queue} has no dead letters; `oq worker --dead-letter-queue` adds them.")
        return
    show_table(
        ("letter", "name", "job", "written", "kind", "reason"),
        [
            [
                letter.id,
                letter.name,
                letter.original_job_id,
                moment_text(letter.added_at),
                letter.failure_kind or "",
                letter.failed_reason[:80],
            ]
            for letter in letters
        ],
    )


def _by_kind(groups: Sequence[LetterGroup]) -> list[dict[str, Any]]:
    """Return for each kind of failure how many letters it has, and the latest; "not kept" where the job is gone."""
    return [
        {
            "kind": group.kind or "not kept",
            "letters": len(group.letters),
            "latest": group.ids[0],
            "reason": group.reason[:80],
        }
        for group in groups
    ]


@verb(app, "show")
def _show(client: Queue, letter_id: LetterId) -> Details:
    """Show a dead letter: which job failed, with what data, and why."""
    letter = client.dead_letters.find(letter_id)
    if letter is None:
        raise JobNotFoundError(client.name, letter_id)
    shown = asdict(letter) | {
        "attempts": letter.attempts,
        "added_at": time_text(letter.added_at),
        "data": dump(letter.data),
    }
    shown.pop("attempts_made")
    return Details(asdict(letter), name_fields(shown))


@verb(app, "replay")
def _replay(
    client: Queue,
    letter_id: Annotated[str | None, typer.Argument(help="The dead letter's id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of the queue.")] = False,
    count: Annotated[int, typer.Option(help="With all: at most this many, oldest first; 0 means all.")] = 0,
) -> Done:
    """Run dead jobs again, as new jobs with all their attempts."""
    if (letter_id is None) is not everything:
        raise UsageError("No dead letter is named; pass its id, or --all; see `oq dead ls`.")
    if letter_id is not None:
        job = client.dead_letters.replay(letter_id)
        return Done(f"Runs again as job {job.id}.", {"letter": letter_id, "id": job.id})
    replayed = client.dead_letters.replay_all(count or None)
    return Done(f"To run again: {format_count(replayed, 'job')}.", {"replayed": replayed})


@verb(app, "purge")
def _purge(client: Queue, yes: Yes = False) -> Done:
    """Remove all dead letters of a queue."""
    ask(yes, f"Remove all dead letters of queue {client.name}?")
    dropped = client.dead_letters.purge()
    return Done(f"Removed {format_count(dropped, 'dead letter')}.", {"dropped": dropped})
