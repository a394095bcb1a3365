"""What docs/how-to/test-your-pipelines.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestration_queue import JobOptions, Queue
from orchestration_queue.testing import assert_enqueued

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "test-your-pipelines.md").read_text()
MODULES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))


def test_every_block_is_a_module_and_its_tests_pass(pytester: pytest.Pytester) -> None:
    assert len(MODULES) == PAGE.count("```python")
    tests = {name: source for name, source in MODULES.items() if name not in ("conftest", "test_resource")}
    pytester.makepyfile(**tests)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope=function\npythonpath=.\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=sum(source.count("def test_") for source in tests.values()))


@pytest.mark.dagster
def test_the_dagster_block_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_resource=MODULES["test_resource"])
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_conftest_takes_the_place_of_our_server(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(MODULES["conftest"])
    pytester.makepyfile("def test_url(oq_server):\n    assert oq_server == 'redis://localhost:6379/15'\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_message_reads_as_shown(oq_queue: Queue) -> None:
    oq_queue.add("send", {"to": "ann", "text": "Welcome!"})
    oq_queue.add("send", {"to": "ann", "text": "Still there?"}, JobOptions(delay=7))
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(oq_queue, "send", data={"to": "bob", "text": "Welcome!"}, count=1)
    (shown,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    assert str(caught.value).replace(oq_queue.name, "test-0f9b6c1d2e3a") == shown
