"""Retry failing jobs with a backoff; read, repair and replay the dead letters of those that fail for good.

Prints::

    card 13 failed after 3 attempts: ValueError: no such card
    letter: charge {'card': 13}
    replayed: charged card 13
"""

from datetime import timedelta

from orchestration_queue import Backoff, JobOptions, Queue, Tasks, WorkerOptions
from orchestration_queue.errors import JobFailedError
from orchestration_queue.testing import running_worker

tasks = Tasks(queue="payments")
known = {7}
quickly = Backoff(type="exponential", delay=timedelta(milliseconds=50))


@tasks.task(options=JobOptions(attempts=3, backoff=quickly))
def charge(card: int) -> str:
    """Charge a card that the bank knows."""
    if card not in known:
        raise ValueError("no such card")
    return f"charged card {card}"


if __name__ == "__main__":
    options = WorkerOptions(dead_letter_queue="payments-dead", promotion_interval=timedelta(milliseconds=50))
    with Queue("payments") as queue, running_worker(queue, tasks, options=options), tasks:
        try:
            charge.add(card=13).wait(timeout=30)
        except JobFailedError as error:
            print("card 13 failed after 3 attempts:", error.reason)

        (letter,) = queue.dead_letters.list()
        print("letter:", letter.name, letter.data)

        known.add(13)
        job = queue.dead_letters.replay(letter.id)
        print("replayed:", job.wait(timeout=30))
