"""Mistakes on the command line: each ends in one sentence and an exit code, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.integration.test_cli import Oq, commands

UNKNOWN = "Queue 'nix' is unknown on this server"
NO_JOB = "has no job 'nix'"
NO_FLOW = "has no record of a flow 'nix'"
NO_SCHEDULER = "has no scheduler 'nix'"

MISUSES: list[tuple[str, int, str]] = [
    ("queue ls extra", 2, "see `oq queue ls --help`"),
    ("queue show nix", 3, UNKNOWN),
    ("queue show", 2, "Missing argument"),
    ("queue pause a:b", 2, "Queue name 'a:b' contains ':'"),
    ("queue resume nix", 3, UNKNOWN),
    ("queue retry q --count -1", 2, "must be a whole number"),
    ("queue retry nix", 3, UNKNOWN),
    ("queue retry q --kind=", 2, "`kind` must be a non-empty string"),
    ("queue failures nix", 3, UNKNOWN),
    ("queue clean q --kind timeout --yes", 2, "have no kind of failure"),
    ("job ls q --state completed --kind timeout", 2, "have no kind of failure"),
    ("dead ls q --by name", 2, "'name' is not"),
    ("queue drain nix --yes", 3, UNKNOWN),
    ("queue clean q --state waiting --yes", 2, "'waiting' is not one of"),
    ("queue clean nix --yes", 3, UNKNOWN),
    ("queue obliterate nix --yes", 3, UNKNOWN),
    ("queue limit q --concurrency -1", 2, "must be a whole number >= 1"),
    ("queue limit q --rate -1", 2, "max"),
    ("queue limit q --rate 5 --per 0", 2, "duration"),
    ("queue metrics nix", 3, UNKNOWN),
    ("queue stats nix", 3, UNKNOWN),
    ("queue stats q --day yesterday", 2, "--day 'yesterday' is not a day"),
    ("queue metrics q --hours 1000", 2, "--hours"),
    ("job add a{b n", 2, "Queue name 'a{b' contains '{'"),
    ("job add q n --data {", 2, "is not JSON"),
    ("job add q n --delay -1", 2, "delay"),
    ("job add q n --at soon", 2, "--at 'soon' is not a time in ISO 8601"),
    ("job add q n --at 2030-01-31T06:00 --delay 5", 2, "`delay` and `delay_until` are both given"),
    ("job add q n --priority 2049", 2, "priority"),
    ("job add q n --attempts -1", 2, "attempts"),
    ("job add q n --backoff soon", 2, "--backoff 'soon' is not a pause"),
    ("job add q n --backoff exponental:2", 2, "exponential"),
    ("job add q n --timeout 0", 2, "timeout"),
    ("job add q n --ttl -1", 2, "ttl"),
    ("job add q n --lifo --key k", 2, "lifo and ordering.key cannot be used together"),
    ("job add q n --job-id a:b", 2, "Job id 'a:b' contains ':'"),
    ("job show q nix", 3, NO_JOB),
    ("job show nix 1", 3, UNKNOWN),
    ("job why q nix", 3, NO_JOB),
    ("job why nix 1", 3, UNKNOWN),
    ("job ls q --state lost", 2, "'lost' is not one of"),
    ("job ls q --limit 0", 2, "--limit"),
    ("job watch q nix", 3, NO_JOB),
    ("job logs q nix", 3, NO_JOB),
    ("job stream q nix", 3, NO_JOB),
    ("job stream q 1 --after x", 2, "'x'"),
    ("job retry q 1", 3, "retried"),
    ("job promote q 1", 3, "not delayed"),
    ("job cancel q nix", 3, NO_JOB),
    ("job rm q nix --yes", 3, NO_JOB),
    ("job signal q 1 go", 3, "is not suspended"),
    ("job signal q 1 go --data {", 2, "is not JSON"),
    ("job priority q 1 2049", 2, "priority"),
    ("job delay q 1 -- -5", 2, "delay"),
    ("job update q 1 {", 2, "is not JSON"),
    ("job update q nix 1", 3, NO_JOB),
    ("job add q n --tag=", 2, "A tag must be 1 to 100 printable characters"),
    ("tag ls nix", 3, UNKNOWN),
    ("tag ls q --limit 0", 2, "--limit"),
    ("tag show nix t", 3, UNKNOWN),
    ("tag show q t --offset -1", 2, "--offset"),
    ("tag add q nix t", 3, NO_JOB),
    ("tag add q 1", 2, "Missing argument"),
    ("tag drop q nix t", 3, NO_JOB),
    ("tag retry nix t", 3, UNKNOWN),
    ("tag cancel nix t --yes", 3, UNKNOWN),
    ("tag rm nix t --yes", 3, UNKNOWN),
    ("dead ls nix", 3, UNKNOWN),
    ("dead show q nix", 3, NO_JOB),
    ("dead replay q", 2, "Name one letter, or pass --all"),
    ("dead purge nix --yes", 3, UNKNOWN),
    ("flow ls q --state lost", 2, "'lost' is not one of"),
    ("flow show q nix", 3, NO_FLOW),
    ("flow why q nix", 3, NO_FLOW),
    ("flow why nix f", 3, UNKNOWN),
    ("flow tree q nix", 3, "has no job of a flow 'nix'"),
    ("flow keep q --interval 0", 2, "'--interval'"),
    ("flow submit nix:dag", 2, "The module 'nix' cannot be imported"),
    ("flow submit os:sep", 2, "is a str, not a flow"),
    ("flow explain nix.py:dag", 2, "There is no file 'nix.py'"),
    ("flow explain os:sep --carrier nix", 2, "'nix' is not one of"),
    ("flow retry q nix", 3, NO_FLOW),
    ("flow cancel q nix --yes", 3, NO_FLOW),
    ("flow pause q nix", 3, NO_FLOW),
    ("flow resume q nix", 3, NO_FLOW),
    ("flow rm q nix --yes", 3, NO_FLOW),
    ("scheduler ls nix", 3, UNKNOWN),
    ("scheduler show q nix", 3, NO_SCHEDULER),
    ("scheduler add q s", 2, "runs by one of --cron, --every and --after"),
    ("scheduler add q s --every 0", 2, "every"),
    ("scheduler add q s --every 1 --tz UTC", 2, "--tz and --day-or"),
    ("scheduler rm q nix --yes", 3, NO_SCHEDULER),
    ("scheduler pause q nix", 3, NO_SCHEDULER),
    ("scheduler resume q nix", 3, NO_SCHEDULER),
    ("scheduler run q nix", 3, NO_SCHEDULER),
    ("scheduler next q nix", 3, NO_SCHEDULER),
    ("scheduler next q nix --count 0", 2, "--count"),
    ("broadcast publish a:b s", 2, "contains ':'"),
    ("broadcast publish b s --data {", 2, "is not JSON"),
    ("broadcast ls a:b", 2, "contains ':'"),
    ("broadcast subscribe b a:b", 2, "'a:b'"),
    ("broadcast subscribe b s --start soon", 2, "'soon'"),
    ("broadcast unsubscribe b a:b", 2, "'a:b'"),
    ("server start --url redis://h", 2, "is not an embedded one"),
    ("server stop --url redis://h", 2, "is not an embedded one"),
    ("server status --url redis://h", 2, "is not an embedded one"),
    ("library dump nix", 2, "There is no library 'nix'"),
    ("library dump glidemq --script", 2, "no form as a script"),
    ("library status --url http://x", 2, "The server URL 'http://x' cannot be read"),
    ("library load --url http://x", 2, "The server URL 'http://x' cannot be read"),
    ("dagster worker", 2, "DAGSTER_HOME is not set"),
    ("dagster dev --port x", 2, "--port"),
    ("dagster daemon", 2, "DAGSTER_HOME is not set"),
    ("dagster sweep", 2, "DAGSTER_HOME is not set"),
    ("spark archive extra", 2, "see `oq spark archive --help`"),
    ("worker run nix", 2, "write module:object or file.py:object"),
    ("worker nix", 2, "write module:object or file.py:object"),
    ("worker os:getpid --log-format xml", 2, "'xml' is not one of"),
    ("worker os:getpid --processes 0", 2, "--processes"),
    ("worker os:getpid --queue q --processes 2 --metrics-port 0", 2, "--metrics-port serves one process"),
    ("worker os:getpid", 2, "pass --queue"),
    ("worker os:getpid --queue q --concurrency 0", 2, "concurrency"),
    ("worker ls nix", 3, UNKNOWN),
    *((f"worker {verb} nix --all", 3, UNKNOWN) for verb in ("ping", "pause", "resume")),
    ("worker ping q", 2, "Name workers, or pass --all"),
    ("worker ping q w --all", 2, "Name workers, or pass --all"),
    ("worker ping q nix", 3, "has no worker 'nix' that is alive"),
    ("worker ping q --all --timeout 0", 2, "--timeout"),
    ("worker stop q", 2, "Name workers, or pass --all"),
    ("worker stop nix --all --yes", 3, UNKNOWN),
    ("worker concurrency q 0 --all", 2, "`concurrency` must be a whole number from 1 to 10,000"),
    ("worker concurrency q", 2, "Missing argument"),
    ("queue events nix", 3, UNKNOWN),
    ("queue events q --limit 0", 2, "--limit"),
    ("queue top --interval 0", 2, "--interval"),
    ("usage a:b", 2, "contains ':'"),
    ("usage --hours 0", 2, "--hours"),
    ("serve --host 0.0.0.0", 2, "pass `--tokens FILE`"),
    ("serve --tokens nix.json", 2, "The token file 'nix.json' cannot be read"),
    ("serve --compression zip", 2, "no codec 'zip'"),
    ("serve --port -1", 2, "--port"),
    ("ui --host 0.0.0.0", 2, "pass `--tokens FILE`"),
    ("token ci --scope root", 2, "A token's scope must be one of read, add, act, admin"),
    ("server bench --jobs 1", 2, "--jobs"),
    ("doctor nix", 3, UNKNOWN),
    ("qless queues extra", 2, "unexpected extra argument"),
    ("qless pause", 2, "Missing argument"),
    ("qless resume", 2, "Missing argument"),
    ("qless workers extra", 2, "unexpected extra argument"),
    ("qless failed g --limit 0", 2, "--limit"),
    ("qless unfail q", 2, "Missing argument"),
    ("qless check extra", 2, "unexpected extra argument"),
    ("qless events --limit 0", 2, "--limit"),
    ("qless move", 2, "Missing argument"),
    ("qless move q --queue a:b --yes", 2, "contains ':'"),
    ("qless worker q --handler nix", 2, "write module:object or file.py:object"),
    ("qless job add q K --data {", 2, "is not JSON"),
    ("qless job ls q --state nix", 2, "--state"),
    ("qless job show", 2, "Missing argument"),
    ("qless job cancel", 2, "Missing argument"),
    ("qless config ls extra", 2, "unexpected extra argument"),
    ("qless config set", 2, "Missing argument"),
    ("chasqui inspect", 2, "Missing argument"),
    ("chasqui pause", 2, "Missing argument"),
    ("chasqui resume", 2, "Missing argument"),
    ("chasqui events q --limit 0", 2, "--limit"),
    ("chasqui move q", 2, "Missing option '--to'"),
    ("chasqui move q --to moon", 2, "'moon' is not one of 'own', 'chasquimq'"),
    ("chasqui worker q nix", 2, "write module:object or file.py:object"),
    ("chasqui job add q n --data {", 2, "is not JSON"),
    ("chasqui job ls q --limit 0", 2, "--limit"),
    ("chasqui job cancel q", 2, "Missing argument"),
    ("chasqui dead ls q --limit 0", 2, "--limit"),
    ("chasqui dead replay q", 2, "Name dead letters, or pass --all"),
    ("chasqui dead purge", 2, "Missing argument"),
    ("chasqui scheduler ls q --limit 0", 2, "--limit"),
    ("chasqui scheduler rm q", 2, "Missing argument"),
]


@pytest.mark.parametrize(("words", "code", "says"), MISUSES, ids=[case[0] for case in MISUSES])
def test_a_mistake_is_one_sentence_and_writes_nothing(
    server_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, code: int, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    oq = Oq(server_url)
    assert oq("job", "add", "q", "n").exit_code == 0
    before = _contents(raw)
    result = oq(*words.split())
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert _contents(raw) == before


def _contents(raw: redis.Redis) -> dict[str, object]:
    return {key: raw.dump(key) for key in raw.scan_iter("*")}


def test_every_verb_has_a_case() -> None:
    verbs = {" ".join(command) for command in commands()}
    covered = {verb for verb in verbs if any(f"{words} ".startswith(f"{verb} ") for words, _, _ in MISUSES)}
    assert verbs == covered
