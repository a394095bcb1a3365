"""The page about the command `oq`, from the commands themselves: what `--help` says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from typer.main import get_command

from orchestration_queue.cli.main import app

__all__ = ["cli"]

INTRODUCTION = """
    oq NOUN VERB [ARGUMENTS] [OPTIONS]

`oq worker app:tasks` is short for `oq worker run app:tasks`. `oq doctor`, `oq usage`, `oq serve`, `oq ui` and
`oq token` concern the whole server and have no noun.

Commands that use a server take `--url` and `--prefix`, those that print something `--json`, those that ask for
confirmation `--yes`; `-h` or `--help` explains each. Every option can be given in the environment, under the name of
its command: `--limit` of `oq queue clean` as `OQ_QUEUE_CLEAN_LIMIT`. The tables below name the variables that
are shorter; three hold for all commands:

| Variable | Option | Meaning |
|---|---|---|
| `OQ_URL` | `--url` | the server, [as a URL](../how-to/connect.md); default an embedded one in `.oq/` |
| `OQ_PREFIX` | `--prefix` | first part of every key; default `glide` |
| `OQ_JSON` | `--json` | print JSON, for programs |

`oq --install-completion` lets your shell complete nouns, verbs, options and their values.

Results go to stdout. An error is one sentence on stderr and an exit code that says who must act:

| Code | Who must act | Examples |
|---|---|---|
| 0 | | success |
| 1 | the job's author | a job that `--wait` waited for failed or was late; a worker left active jobs behind |
| 2 | you | a misspelled option, an invalid name, data that is not JSON, a question that nothing answered |
| 3 | you: the state is another one | an unknown queue, job or flow |
| 4 | the server's operator | the server is unreachable or refuses |
| 5 | you: the output | stdout could not be written, as on a full disk; what the command did is done |
| 141 | | the reader of stdout left early, as `head` does |

Characters that the encoding of stdout lacks are printed as `?`; arguments are UTF-8 in every locale.
"""

_COMMON = {"--help", "--url", "--prefix", "--json", "--yes"}


def cli() -> str:
    """Return the page."""
    return "\n".join(["# The command `oq`", INTRODUCTION, *_sections(get_command(app), "oq")])


def _sections(command: Any, name: str) -> Iterator[str]:
    verbs = getattr(command, "commands", None)
    if verbs is not None:
        for verb, each in sorted(verbs.items(), key=lambda item: not hasattr(item[1], "commands")):
            yield from _sections(each, f"{name} {verb}")
        return
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [
        parameter
        for parameter in command.params
        if parameter.param_type_name == "option" and not _COMMON & set(parameter.opts)
    ]
    metavars = [_metavar(argument) for argument in arguments]
    yield from (f"## `{' '.join([name, *metavars])}`", "", _text(command.help), "")
    yield from _table(
        "Argument", [(f"`{metavar}`", "", each.help) for metavar, each in zip(metavars, arguments, strict=True)]
    )
    yield from _table("Option", [(_flags(each), _default(each), _meaning(each)) for each in options])


def _metavar(argument: Any) -> str:
    name = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _text(words: str | None) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (words or "").split("\n\n"))


def _table(head: str, rows: list[tuple[str, str, str | None]]) -> Iterator[str]:
    if not rows:
        return
    yield from (f"| {head} | Default | Meaning |", "|---|---|---|")
    for name, default, meaning in rows:
        yield f"| {name} | {default} | {_text(meaning).replace('|', chr(92) + '|')} |"
    yield ""


def _flags(option: Any) -> str:
    return ", ".join(f"`{flag}`" for flag in [*option.opts, *option.secondary_opts] if flag.startswith("--"))


def _default(option: Any) -> str:
    value = option.default
    if isinstance(value, bool):
        return "on" if value else ""
    return "" if value is None or callable(value) or value in ((), [], "") else f"`{getattr(value, 'value', value)}`"


def _meaning(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    named = get_args(annotation) if get_origin(annotation) is Literal else ()
    variable = f" `{option.envvar}`." if isinstance(option.envvar, str) else ""
    one_of = f" One of {', '.join(f'`{choice}`' for choice in named)}." if named else ""
    return f"{option.help or ''}{one_of}{variable}"
