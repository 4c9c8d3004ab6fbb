"""How runs are spread over rounds, and what becomes of samples."""

import unittest

from fumehood_bench.load import Block, Sample
from fumehood_bench.matrix import Cell, Rounds, in_turn, rounds_of
from fumehood_bench.settings import Settings


class MatrixTest(unittest.TestCase):
    def test_there_are_never_fewer_runs_than_asked_for(self) -> None:
        settings = Settings(runs=100, rounds=5)
        self.assertEqual(rounds_of(settings, 1), Rounds(5, 20))
        self.assertEqual(rounds_of(settings, 8), Rounds(5, 20))
        self.assertEqual(rounds_of(settings, 32), Rounds(2, 64))
        for clients in (1, 7, 32, 100):
            rounds = rounds_of(settings, clients)
            self.assertGreaterEqual(rounds.count * rounds.block, 100)
            self.assertGreaterEqual(rounds.block, 2 * clients)

    def test_each_round_begins_with_another_one(self) -> None:
        self.assertEqual([in_turn(["a", "b", "c"], number) for number in range(4)],
                         [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]])

    def test_a_cell_counts_failures_and_how_runs_were_served(self) -> None:
        cell = Cell("fumehood-warm", "hello", "closed", 1)
        warm = {"start": "warm", "dataset_mount": None}
        cell.add(Block([Sample(0.01, served=warm), Sample(9.0, error="gone")], 2.0))
        cell.add(Block([Sample(0.03, served={"start": "cold", "dataset_mount": "created"})], 2.0))
        told = cell.as_json()
        self.assertEqual((told["runs"], told["failures"], told["errors"]), (2, 1, {"gone": 1}))
        self.assertEqual(told["served"]["start"], {"warm": 1, "cold": 1})
        self.assertEqual(told["served"]["dataset_mount"], {"None": 1, "created": 1})
        self.assertEqual(told["milliseconds"]["max"], 30.0)
        self.assertEqual(told["runs_per_second"], 0.5)


if __name__ == "__main__":
    unittest.main()
