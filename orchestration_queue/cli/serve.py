"""`oq serve`: the queues over HTTP."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestration_queue._extras import named_extra
from orchestration_queue.cli.common import JsonFlag, Prefix, Url, show_json
from orchestration_queue.cli.text import print_line
from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["serve", "token", "ui"]

_DRAIN_S = 10


Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)]
Queues = Annotated[str | None, typer.Option(help="Serve only these queues, separated by commas.")]
Wires = Annotated[
    list[str] | None,
    typer.Option("--wire", help="Another wire's queues to serve, as in chasquimq=emails,orders; can be repeated."),
]
Compression = Annotated[str, typer.Option(help="Compression of job data: none or gzip.")]
Tokens = Annotated[Path | None, typer.Option(help="File of tokens, as `oq token` prints them.")]
TrustedHeader = Annotated[
    str | None, typer.Option(help="Header in which a reverse proxy names the user it has authenticated.")
]
GroupsHeader = Annotated[
    str | None, typer.Option(help="Header in which it lists the user's groups; requires a file of groups.")
]
Groups = Annotated[Path | None, typer.Option(help="File with the permissions of each group.")]
DagsterUrl = Annotated[str | None, typer.Option(help="URL of Dagster's webserver, for links from jobs to runs.")]
TracesUrl = Annotated[
    str | None, typer.Option(help="URL of a trace, with {trace_id} for its id, for links from jobs to traces.")
]
WithoutTokens = Annotated[
    bool, typer.Option("--without-tokens", help="Allow everything to anyone who can reach the port.")
]


def serve(
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    queues: Queues = None,
    wires: Wires = None,
    compression: Compression = "none",
    tokens: Tokens = None,
    trusted_header: TrustedHeader = None,
    groups_header: GroupsHeader = None,
    groups: Groups = None,
    without_tokens: WithoutTokens = False,
) -> None:
    """Serve the HTTP API: the routes of glide-mq's proxy, and `/v1`."""
    trusted = (trusted_header, groups_header, groups)
    _run(url, prefix, host, port, queues, wires or [], compression, tokens, trusted, without_tokens, console=False)


def ui(
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    queues: Queues = None,
    wires: Wires = None,
    compression: Compression = "none",
    tokens: Tokens = None,
    trusted_header: TrustedHeader = None,
    groups_header: GroupsHeader = None,
    groups: Groups = None,
    without_tokens: WithoutTokens = False,
    dagster: DagsterUrl = None,
    traces: TracesUrl = None,
) -> None:
    """Serve the web console, and everything that `oq serve` does."""
    trusted = (trusted_header, groups_header, groups)
    _run(
        url, prefix, host, port, queues, wires or [], compression, tokens, trusted, without_tokens,
        console=True, dagster=dagster, traces=traces,
    )  # fmt: skip


def _run(
    url: str | None,
    prefix: str,
    host: str,
    port: int,
    queues: str | None,
    wires: Sequence[str],
    compression: str,
    tokens: Path | None,
    trusted: tuple[str | None, str | None, Path | None],
    without_tokens: bool,
    *,
    console: bool,
    dagster: str | None = None,
    traces: str | None = None,
) -> None:
    with named_extra():
        import uvicorn

        from orchestration_queue.http.access import Access, read_groups, read_tokens
        from orchestration_queue.http.app import create_app
    trusted_header, groups_header, groups = trusted
    known = None if tokens is None else read_tokens(tokens)
    is_guarded = known is not None or trusted_header is not None
    if not (is_guarded or without_tokens or _is_loopback(host)):
        raise UsageError(
            f"Anyone who can reach {host}:{port} could add and remove jobs; pass `--tokens FILE`, "
            "`--trusted-header`, or `--without-tokens` if another system authenticates."
        )
    access = Access(
        known if is_guarded else None,
        trusted_header=trusted_header,
        groups_header=groups_header,
        groups=() if groups is None else read_groups(groups),
    )
    of_wires: dict[str, list[str]] = {}
    for given in wires:
        wire, _, text = given.partition("=")
        if not (named := _names(text)):
            raise UsageError(f"`--wire {given}` names no queue; pass a wire and its queues, as in chasquimq=emails.")
        of_wires.setdefault(wire, []).extend(named)
    # Other hosts are refused, so that no website reaches this port by DNS rebinding.
    hosts = None if is_guarded or without_tokens else [host, "localhost", "127.0.0.1", "::1"]
    app = create_app(
        url, prefix=prefix, queues=None if queues is None else _names(queues), wires=of_wires,
        compression=compression, access=access, console=console, hosts=hosts, dagster=dagster, traces=traces,
    )  # fmt: skip
    if console:
        print_line(f"The console is at http://{host}:{port}/ui")
    uvicorn.run(
        app, host=host, port=port, log_level="info", access_log=False, server_header=False,
        timeout_graceful_shutdown=_DRAIN_S,
    )  # fmt: skip


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def token(
    name: Annotated[str, typer.Argument(help="Name of its user, for the audit log.")],
    scope: Annotated[list[str], typer.Option(help="What it allows: read, add, work, act or admin; can be repeated.")],
    queue: Annotated[
        list[str] | None, typer.Option(help="Pattern of the queues it is valid for; can be repeated.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Maximum requests per second; default unlimited.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a token for `oq serve`, and its entry for the token file."""
    from orchestration_queue.http.access import Token, new_token

    text = new_token()
    made = Token.of(name, text, scope, queue or ["*"], rate)
    entry: dict[str, object] = {"name": made.name, "sha256": made.digest, "scopes": sorted(made.scopes)}
    entry |= {"queues": list(made.queues)} | ({} if rate is None else {"rate": rate})
    if as_json:
        show_json({"token": text, "entry": entry})
        return
    print_line(f"Token, shown once: {text}")
    print_line("Entry of the token file:")
    show_json(entry)
