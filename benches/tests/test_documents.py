"""What is published names no path of the machine it was made on."""

import unittest
from pathlib import Path

from fumehood_bench.__main__ import without_paths
from fumehood_bench.settings import Places


class PathsTest(unittest.TestCase):
    def test_paths_in_messages_are_replaced(self) -> None:
        places = Places(Path("/srv/somebody/checkout"), Path("/srv/somebody/checkout/target/bench-work"),
                        Path("/r"), Path("/d"), Path("/p"))
        message = "error: /srv/somebody/checkout/target/bench-work/outputs/7 and /srv/somebody/checkout/src"
        self.assertEqual(without_paths({"errors": {message: 1}}, places),
                         {"errors": {"error: WORK/outputs/7 and REPOSITORY/src": 1}})


if __name__ == "__main__":
    unittest.main()
