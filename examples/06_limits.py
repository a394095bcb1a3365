"""Run each customer's jobs in order, one at a time, under a rate limit for all of them.

Prints::

    ada: 1 2 3
    bob: 1 2 3
    not faster than 20 a second
"""

import time
from collections import defaultdict
from datetime import timedelta

from orchestration_queue import JobOptions, Ordering, Queue, RateLimit, Tasks, WorkerOptions
from orchestration_queue.testing import running_worker

tasks = Tasks(queue="mails")
sent: dict[str, list[int]] = defaultdict(list)


@tasks.task
def send(to: str, number: int) -> None:
    """Later letters are quicker, and still wait for those before them."""
    time.sleep(0.03 / number)
    sent[to].append(number)


if __name__ == "__main__":
    with Queue("mails") as queue:
        queue.set_global_rate_limit(RateLimit(max=2, duration=timedelta(milliseconds=100)))
        with running_worker(queue, tasks, options=WorkerOptions(concurrency=8)), tasks:
            began = time.monotonic()
            letters = [
                send.with_options(JobOptions(ordering=Ordering(key=to))).add(to=to, number=number)
                for number in (1, 2, 3)
                for to in ("ada", "bob")
            ]
            for letter in letters:
                letter.wait(timeout=30)
            took = time.monotonic() - began
    for to, numbers in sorted(sent.items()):
        print(f"{to}:", *numbers)
    print("not faster than 20 a second" if len(letters) / took <= 30 else f"six in {took:.2f} s")
