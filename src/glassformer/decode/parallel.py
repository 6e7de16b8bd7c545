"""Two batches at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")

_alone = Lock()  # the number of threads is one for the whole process


def two_at_once(function: Callable[[Job], Result], jobs: Sequence[Job], device: torch.device) -> list[Result]:
    """Return the function's results for the jobs, in their order; on a CPU, work on two at a time.

    Each has half of PyTorch's threads meanwhile: while one waits for Python, the other computes, and a small product
    gains little from being shared out. Where another call does this already, the jobs come one after the other.
    """
    n_threads = torch.get_num_threads()
    if device.type != "cpu" or n_threads < 2 or len(jobs) < 2 or not _alone.acquire(blocking=False):
        return [function(job) for job in jobs]
    try:
        torch.set_num_threads(n_threads // 2)
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(function, jobs))
    finally:
        torch.set_num_threads(n_threads)
        _alone.release()
