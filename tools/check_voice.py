"""Refuse the phrasings that CONTRIBUTING.md (Words and voice) replaces. Run as ``python tools/check_voice.py PATH...``.

Of Python and Lua files, comments and string literals are read; of Markdown files, everything outside code.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

PHRASES: dict[str, str] = {
    r"(?-i:is none)\b(?! of)": "say what is missing or wrong",
    r"there (?:is|was) no(?:thing)? [^.,;:]{1,40} to\b": "say what is missing",
    r"(?:some|no)body\b": "name who: the worker, the caller, the user",
    r"who(?:so)?ever\b": "name who: the worker, the caller, the user",
    r"stands?\b(?! (?:for|by)\b)": "use is, holds or remains",
    r"stand(?:s|ing)? still\b": "use blocked, stalled or idle",
    r"shall\b": "use must, should or will",
    r"(?:is|are) to be\b": "use must be",
    r"(?:sees?|seeing) to (?:it|the|a|this|that|flows?)\b": "use reconcile, ensure or handle",
    r"of itself\b": "use on its own",
    r"so many\b": "give the number a name: at most `limit`",
    r"(?:tells?|told|telling) (?:a|an|the|its|it|them|him|others?|listeners?|that|how|who|whether)\b": (
        "use notify, report, return or print"
    ),
    r"(?:look|looks|looking|looked) at\b": "use read, check or inspect",
    r"anew\b": "use again or new",
    r"for ever\b": "use forever, or give the bound",
    r"mend(?:s|ed|ing)?\b": "use repair or fix",
    r"colou?rless|colours?\b": "use US spelling: color",
    r"withdraw(?:s|n|ing)?\b": "use cancel",
    r"surroundings\b": "use lifespan or environment",
    r"patients?\b": "use inspected queue",
    r"hang(?:s|ing)? up\b": "use disconnect or close the connection",
    r"by the clock of\b": "use in the time zone of",
    r"even distances?\b": "use at a fixed interval",
    r"put off\b": "use postponed or delayed",
    r"comes? along\b": "use is included or is kept",
    r"(?:is|are) told in\b": "use is explained in, or link to it",
    r"for want of\b": "use because ... is missing",
    r"at one stroke\b": "use atomically",
    r"looks? after (?:itself|themselves)\b": "use on demand, or name what it does",
    r"steer(?:s|ing)?\b": "use control",
    r"hear(?:s|d|ing)? of\b": "use notice, receive or learn of",
    r"look(?:s|ed|ing)? after\b": "use operate, manage or handle",
    r"(?<!round )(?<!round-)trips?\b": "use exchange",
    r"(?:go|goes|going|went|gone) on\b": "use continue or resume",
    r"waits? for nothing\b": "use has no dependencies",
    r"(?:become|becomes|became) of\b": "name it: the outcome, the state, the result",
    r"(?:come|comes|came) of\b": "name it: the outcome, the result",
    r"but for\b": "use except",
    r"heeds?\b": "use obey, apply or notice",
    r"lets? go\b|letting go\b": "use release",
    r"(?:fell|falls?|fallen) silent\b": "use stalled",
    r"(?:is|are|was|were) away\b": "use is unreachable",
    r"told of\b": "use notified of, reported or announced",
    r"walks? (?:all|over)\b": "use scan",
    r"time is up\b": "use its timeout has expired",
    r"in (?:whose|\w+'s|\w+s') hands\b": "use pending, active or delivered to",
    r"however (?:it|that|they) ends?\b": "use with any outcome",
    r"the like\b": "name it, or use such as",
    r"there from before\b": "use existed or already exists",
    r"(?:no[tr]?|none|nothing|never)\b[^.,;:]{1,40} any ?more\b": "use no longer",
}
"""What not to write, as patterns that begin at a word, and what to do instead."""

NAMES = "BroadcastLine|FlowKeeper|SharedPlaces|is_hungry|lock_duration"
"""Identifiers that have another name now."""

_EXAMPLES = {"check_voice.py", "test_tools.py"}
"""What is refused, by name."""

_BANNED = re.compile(
    "|".join(rf"(?P<p{number}>\b(?:{pattern}))" for number, pattern in enumerate(PHRASES)), re.IGNORECASE
)
_OLD_NAME = re.compile(rf"\b(?:{NAMES})\b")
_ADVICE = tuple(PHRASES.values())
_STRINGS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the prose of a file with the number of its first line."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in _STRINGS:
                yield token.start[0], token.string
    elif path.suffix == ".lua":
        for number, line in enumerate(source.splitlines(), 1):
            code, dashes, comment = line.partition("--")
            yield number, comment if dashes else " ".join(re.findall(r'"[^"]*"', code))
    else:
        without_blocks = re.sub(r"^```.*?^```", _blank, source, flags=re.DOTALL | re.MULTILINE)
        yield 1, re.sub(r"`[^`\n]*`|\]\([^)]*\)", _blank, without_blocks)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def check(path: Path) -> Iterator[str]:
    """Yield one message per banned phrase or old name of a file."""
    if path.name in _EXAMPLES:
        return
    for start, prose in prose_of(path):
        for match in _BANNED.finditer(prose):
            advice = _ADVICE[int(str(match.lastgroup)[1:])]
            yield _message(path, start, prose, match, advice)
    if path.suffix == ".py":
        source = path.read_text(encoding="utf-8")
        for match in _OLD_NAME.finditer(source):
            yield _message(path, 1, source, match, "the glossary has another name")


def _message(path: Path, start: int, prose: str, match: re.Match[str], advice: str) -> str:
    line = start + prose.count("\n", 0, match.start())
    return f"{path}:{line}: {' '.join(match[0].split())!r}: {advice}"


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.suffix in {".py", ".lua", ".md"})
        else:
            yield path


def main() -> int:
    """Check the files and folders of the command line; return 1 when a phrase is found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    messages = [message for path in _files(parser.parse_args().paths) for message in check(path)]
    sys.stdout.write("".join(f"{message}\n" for message in messages))
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
