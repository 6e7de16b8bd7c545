"""Two batches at once: the same results, and PyTorch's threads as they were."""

import threading

import pytest
import torch

from glassformer.decode.parallel import two_at_once

CPU = torch.device("cpu")


@pytest.fixture
def four_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield  # type: ignore[misc]
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
class TestTwoAtOnce:
    def test_two_run_at_the_same_time_with_half_of_the_threads(self) -> None:
        both_are_here = threading.Barrier(2, timeout=20)

        def job(n: int) -> tuple[int, int]:
            both_are_here.wait()
            return n, torch.get_num_threads()

        assert two_at_once(job, [1, 2, 3, 4], CPU) == [(1, 2), (2, 2), (3, 2), (4, 2)]
        assert torch.get_num_threads() == 4

    def test_other_threads_keep_theirs(self) -> None:
        """A thread that first uses PyTorch while two jobs run has all threads, and so has whoever comes later."""
        seen: list[int] = []

        def job(_: int) -> None:
            thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
            thread.start()
            thread.join()

        two_at_once(job, [1, 2, 3], CPU)
        assert seen == [4, 4, 4]

    def test_results_in_order(self) -> None:
        first_may_end = threading.Event()

        def job(n: int) -> int:
            if n == 0:
                first_may_end.wait(20)
            first_may_end.set()
            return n

        assert two_at_once(job, list(range(8)), CPU) == list(range(8))

    def test_autocast_belongs_to_one_thread(self) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            assert two_at_once(lambda _: torch.is_autocast_enabled("cpu"), [1, 2], CPU) == [True, True]

    def test_an_error_comes_out_and_leaves_nothing_behind(self) -> None:
        def job(n: int) -> int:
            if n == 2:
                raise ValueError("two")
            return n

        for _ in range(2):
            with pytest.raises(ValueError, match="two"):
                two_at_once(job, [1, 2, 3], CPU)
        assert torch.get_num_threads() == 4
        assert two_at_once(job, [1, 3], CPU) == [1, 3]

    def test_inside_another_call_the_jobs_come_one_by_one(self) -> None:
        def inner(n: int) -> str:
            return f"{n} in {threading.current_thread().name}"

        def outer(n: int) -> bool:
            return len({found.split(" in ")[1] for found in two_at_once(inner, [1, 2, 3], CPU)}) == 1

        assert two_at_once(outer, [1, 2], CPU) == [True, True]
        assert torch.get_num_threads() == 4

    def test_not_on_another_device(self) -> None:
        assert two_at_once(lambda _: torch.get_num_threads(), [1, 2], torch.device("meta")) == [4, 4]
