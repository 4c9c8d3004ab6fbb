"""Percentiles are values that were measured."""

import unittest

from fumehood_bench.percentiles import percentile, summary


class PercentileTest(unittest.TestCase):
    def test_nearest_rank_of_a_hundred(self) -> None:
        samples = [float(number) for number in range(100, 0, -1)]
        for share, expected in ((0.5, 50), (0.95, 95), (0.99, 99), (1, 100), (0.001, 1)):
            self.assertEqual(percentile(samples, share), expected)

    def test_of_few_samples_the_tail_is_the_largest(self) -> None:
        self.assertEqual(percentile([3.0, 1.0, 2.0], 0.99), 3.0)
        self.assertEqual(percentile([3.0, 1.0, 2.0], 0.5), 2.0)
        self.assertEqual(percentile([7.0], 0.01), 7.0)

    def test_nothing_has_no_percentile(self) -> None:
        with self.assertRaises(ValueError):
            percentile([], 0.5)
        for share in (0, -1, 1.01):
            with self.assertRaises(ValueError):
                percentile([1.0], share)

    def test_a_summary_is_in_milliseconds(self) -> None:
        self.assertEqual(
            summary([0.001, 0.003]),
            {"p50": 1.0, "p95": 3.0, "p99": 3.0, "min": 1.0, "max": 3.0, "mean": 2.0},
        )
        self.assertIsNone(summary([]))


if __name__ == "__main__":
    unittest.main()
