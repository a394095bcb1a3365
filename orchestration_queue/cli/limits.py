"""`oq pool` and `oq share`: slots that jobs of all queues share, and the shares of one queue's starts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from orchestration_queue.cli.common import (
    JsonFlag,
    Prefix,
    Url,
    Yes,
    ask,
    moment_text,
    report,
    show_fields,
    show_json,
    show_table,
)
from orchestration_queue.cli.verbs import Done, Listing, verb
from orchestration_queue.client import Pool, Pools, Queue
from orchestration_queue.errors import InvalidOptionError, StateError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.record import when

__all__ = ["parse_pools", "pool_app", "share_app"]

pool_app = typer.Typer(help="Limit jobs across queues by pools of slots, such as connections.", no_args_is_help=True)
share_app = typer.Typer(help="Divide a queue's job starts fairly between tenants.", no_args_is_help=True)

PoolName = Annotated[str, typer.Argument(help="The pool.")]
ShareName = Annotated[str, typer.Argument(help="The share.")]


def parse_pools(words: list[str] | None) -> dict[str, int]:
    """Read ``warehouse`` as one slot of that pool, and ``warehouse=2`` as two."""
    weights = {}
    for word in words or ():
        name, _, slots = word.partition("=")
        try:
            weights[name] = int(slots or "1")
        except ValueError:
            raise InvalidOptionError(
                f"--pool {word!r} is not a pool with slots; pass a name, like warehouse, or warehouse=2 for two slots."
            ) from None
    return weights


def _facts(pool: Pool) -> dict[str, Any]:
    holders = [
        {
            "queue": holder.queue,
            "id": holder.job_id,
            "slots": holder.slots,
            "until": when(holder.until_ms),
        }
        for holder in pool.holders
    ]
    return {"name": pool.name, "slots": pool.slots, "used": pool.used, "waiting": pool.waiting, "holders": holders}


@pool_app.command("ls")
def list_pools(url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False) -> None:
    """List all pools, their slots, and how many jobs wait for them."""
    with Pools(url=url, prefix=prefix) as client:
        pools = client.list()
    if as_json:
        show_json([_facts(pool) for pool in pools])
        return
    show_table(
        ("pool", "slots", "used", "waiting"),
        [(pool.name, str(pool.slots), str(pool.used), str(pool.waiting)) for pool in pools],
    )


@pool_app.command("show")
def show_pool(name: PoolName, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False) -> None:
    """Show a pool and the jobs that hold its slots."""
    with Pools(url=url, prefix=prefix) as client:
        pool = client.find(name)
    if pool is None:
        raise StateError(f"Pool {name!r} is not defined; `oq pool ls` lists those that are.")
    if as_json:
        show_json(_facts(pool))
        return
    show_fields({"pool": pool.name, "slots": str(pool.slots), "used": str(pool.used), "waiting": str(pool.waiting)})
    if pool.holders:
        show_table(
            ("queue", "job", "slots", "lease ends"),
            [
                (holder.queue, holder.job_id, str(holder.slots), moment_text(when(holder.until_ms)))
                for holder in pool.holders
            ],
        )


@pool_app.command("set")
def set_pool(
    name: PoolName,
    slots: Annotated[int, typer.Argument(help="Number of slots, 0 to 1,000; 0 starts no more jobs.")],
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Define a pool, or change how many slots it has."""
    with Pools(url=url, prefix=prefix) as client:
        client.set(name, slots)
    report(as_json, f"Pool {name} has {slots:,} slot{'' if slots == 1 else 's'}.", name=name, slots=slots)


@pool_app.command("rm")
def remove_pool(
    name: PoolName,
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Remove a pool that no job holds or waits for. Jobs that name it later fail."""
    ask(yes, f"Remove pool {name}?")
    with Pools(url=url, prefix=prefix) as client:
        removed = client.remove(name)
    sentence = f"Removed pool {name}." if removed else f"Pool {name} was not defined."
    report(as_json, sentence, name=name, removed=removed)


@verb(share_app, "ls")
def list_shares(queue: Queue) -> Listing:
    """List the shares that have a weight or waiting jobs."""
    shares = queue.shares.list()
    facts = [{"name": share.name, "weight": share.weight, "waiting": share.waiting} for share in shares]
    rows = [(share.name, str(share.weight), str(share.waiting)) for share in shares]
    return Listing(facts, ("share", "weight", "waiting"), rows)


@verb(share_app, "set", may_create=True)
def set_share(
    queue: Queue,
    name: ShareName,
    weight: Annotated[int, typer.Argument(help="Its weight, 1 to 1,000: 2 gets twice the starts of 1.")],
) -> Done:
    """Set the weight of a share."""
    queue.shares.set(name, weight)
    return Done(f"Share {name} of queue {queue.name} has weight {weight:,}.", {"name": name, "weight": weight})


@verb(share_app, "rm")
def remove_share(queue: Queue, name: ShareName) -> Done:
    """Reset the weight of a share to 1; its jobs are kept."""
    removed = queue.shares.remove(name)
    sentence = f"Share {name} has weight 1 again." if removed else f"Share {name} already had weight 1."
    return Done(sentence, {"name": name, "removed": removed})
