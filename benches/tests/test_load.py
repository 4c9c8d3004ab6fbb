"""The load generators make as many runs as asked for, and lose no failure."""

import threading
import time
import unittest
from unittest.mock import patch

from fumehood_bench.load import closed_loop, paced


class LoadTest(unittest.TestCase):
    def test_a_closed_loop_has_so_many_at_a_time_and_no_more(self) -> None:
        lock, now, highest = threading.Lock(), [0], [0]

        def attempt() -> None:
            with lock:
                now[0] += 1
                highest[0] = max(highest[0], now[0])
            time.sleep(0.01)
            with lock:
                now[0] -= 1

        block = closed_loop(attempt, lambda _: None, clients=4, runs=20)
        self.assertEqual((len(block.samples), highest[0]), (20, 4))
        self.assertGreaterEqual(block.wall_seconds, 0.05)

    def test_failures_are_samples_with_a_reason(self) -> None:
        calls = iter(range(10))

        def attempt() -> int:
            number = next(calls)
            if number == 3:
                raise OSError("gone")
            return number

        def judge(number: object) -> dict:
            if number == 5:
                raise ValueError("nothing there")
            return {"start": "warm"}

        block = closed_loop(attempt, judge, clients=1, runs=10)
        self.assertEqual([sample.error for sample in block.samples if sample.error],
                         ["OSError: gone", "ValueError: nothing there"])
        self.assertEqual(block.samples[0].served, {"start": "warm"})

    def test_the_lead_in_is_made_and_left_out(self) -> None:
        made = []
        block = closed_loop(lambda: made.append(time.sleep(0.01)), lambda _: None, clients=1, runs=5, lead_in=20)
        self.assertEqual((len(made), len(block.samples)), (25, 5))
        self.assertLess(block.wall_seconds, 0.15)

    def test_a_block_that_hangs_is_given_up_and_its_runs_have_failed(self) -> None:
        forever = threading.Event()
        numbers = iter(range(4))
        with patch("fumehood_bench.load.STALL_SECONDS", 0.2):
            block = closed_loop(lambda: next(numbers) and forever.wait(30), lambda _: None, clients=2, runs=4)
        forever.set()
        self.assertEqual([bool(sample.error) for sample in block.samples], [False, True, True])

    def test_a_paced_run_waits_first_and_the_wait_is_not_timed(self) -> None:
        waits = []
        block = paced(lambda: None, lambda _: None, 3, lambda: waits.append(time.sleep(0.02)))
        self.assertEqual((len(waits), len(block.samples)), (3, 3))
        self.assertLess(max(sample.seconds for sample in block.samples), 0.02)


if __name__ == "__main__":
    unittest.main()
