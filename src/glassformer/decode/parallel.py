"""Two batches at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")

_alone = Lock()


def two_at_once(function: Callable[[Job], Result], jobs: Sequence[Job], device: torch.device) -> list[Result]:
    """Return the function's results for the jobs, in their order; on a CPU, work on two at a time.

    Each has half of PyTorch's threads meanwhile: while one waits for Python, the other computes, and a small product
    gains little from being shared out. Where another call does this already, or under autocast, which belongs to one
    thread, the jobs come one after the other.
    """
    n_threads = torch.get_num_threads()
    alone = device.type != "cpu" or n_threads < 2 or len(jobs) < 2 or torch.is_autocast_enabled("cpu")
    if alone or not _alone.acquire(blocking=False):
        return [function(job) for job in jobs]
    try:
        started = Barrier(3)

        def start() -> None:
            torch.get_num_threads()  # a thread takes the common number when it first asks, and keeps it then
            torch.set_num_threads(n_threads // 2)  # of this thread, and of all that first ask from now on
            started.wait()

        with ThreadPoolExecutor(2, initializer=start) as pool:
            results = pool.map(function, jobs)
            started.wait()
            torch.set_num_threads(n_threads)  # again for all but the two
            return list(results)
    finally:
        _alone.release()
