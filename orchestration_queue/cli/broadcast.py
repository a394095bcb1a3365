"""`oq broadcast`: publish messages, and control who gets them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from orchestration_queue.cli.common import JsonFlag, Prefix, Url, parse_json, report, show_json, show_table
from orchestration_queue.client import Broadcast
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["app"]

app = typer.Typer(help="Publish messages, and manage subscriptions.", no_args_is_help=True)

BroadcastName = Annotated[str, typer.Argument(metavar="BROADCAST", help="The broadcast.")]
SubscriptionName = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="The subscription.")]


@app.command("publish")
def publish(
    broadcast: BroadcastName,
    subject: Annotated[str, typer.Argument(help="The message's subject.")],
    data: Annotated[str, typer.Option(help="The message's data, as JSON.")] = "null",
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Publish a message to every subscription."""
    with Broadcast(broadcast, url=url, prefix=prefix) as client:
        message = client.publish(subject, parse_json(data))
    report(as_json, f"Published message {message.id} to {broadcast}.", broadcast=broadcast, id=message.id)


@app.command("ls")
def ls(broadcast: BroadcastName, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False) -> None:
    """List the subscriptions, with their unread and active messages."""
    with Broadcast(broadcast, url=url, prefix=prefix) as client:
        found = client.subscriptions()
    if as_json:
        show_json([asdict(each) for each in found])
        return
    show_table(
        ("subscription", "unread", "pending", "workers"),
        [
            (each.name, "-" if each.lag is None else str(each.lag), str(each.pending), str(each.workers))
            for each in found
        ],
    )


@app.command("subscribe")
def subscribe(
    broadcast: BroadcastName,
    subscription: SubscriptionName,
    start: Annotated[
        str, typer.Option(help="$: start with the next message; 0: with the oldest; or after this id.")
    ] = "$",
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Create a subscription; it collects messages while no worker serves it."""
    with Broadcast(broadcast, url=url, prefix=prefix) as client:
        is_new = client.subscribe(subscription, start)
    done = "is created" if is_new else "exists already"
    report(as_json, f"Subscription {subscription} {done}.", subscription=subscription, is_new=is_new)


@app.command("unsubscribe")
def unsubscribe(
    broadcast: BroadcastName,
    subscription: SubscriptionName,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Remove a subscription and its unread messages."""
    with Broadcast(broadcast, url=url, prefix=prefix) as client:
        removed = client.unsubscribe(subscription)
    done = "is removed" if removed else "did not exist"
    report(as_json, f"Subscription {subscription} {done}.", subscription=subscription, removed=removed)
