"""Reports show what was measured, what failed and what is not available."""

import json
import tempfile
import unittest
from pathlib import Path

from fumehood_bench import report
from fumehood_bench.report.table import markdown
from fumehood_bench.targets import judge
from tests.documents import cell, contender, document


def complete() -> dict:
    made = document()
    made["targets"] = [target.as_json() for target in judge(made)]
    return made


class MarkdownTest(unittest.TestCase):
    def test_every_line_of_a_table_has_as_many_columns(self) -> None:
        columns = 0
        for line in markdown(complete(), "data.json").splitlines():
            if not line.startswith("|"):
                columns = 0
                continue
            columns = columns or line.count("|")
            self.assertEqual(line.count("|"), columns, line)

    def test_modes_failures_and_absences_are_told(self) -> None:
        made = complete()
        made["contenders"].append(contender("llm-sandbox", unavailable="no such library"))
        made["contenders"].append(contender("engine-loop"))
        made["cells"].append(cell("engine-loop", "hello", failures=3, errors={"gone | away": 3}))
        text = markdown(made, "data.json")
        self.assertIn("| fumehood-warm | pool keeps up | 20.0 | 30.0 | 40.0 |", text)
        self.assertIn("| llm-sandbox | closed loop | n/a |", text)
        self.assertIn("n/a: no such library", text)
        self.assertIn("| engine-loop | closed loop | 100 (3 failed) |", text)
        self.assertIn("3 × gone | away", text)
        self.assertIn("99 preloaded, 1 cold", text)

    def test_a_document_without_cells_is_still_a_report(self) -> None:
        made = complete()
        made["cells"], made["contenders"] = [], []
        self.assertIn("2000 runs/s", markdown(made, "data.json"))


class WriteTest(unittest.TestCase):
    def test_the_document_comes_back_whole_and_the_chart_is_a_picture(self) -> None:
        made = complete()
        made["cells"][0]["samples"] = [1.5, 2.0, 3.25]
        with tempfile.TemporaryDirectory() as directory:
            try:
                written = report.write(made, Path(directory))
            except ModuleNotFoundError as missing:
                self.skipTest(f"{missing}: run with the benchmark's environment")
            data, _, picture = written
            self.assertEqual(data.name, "2030-01-02.json")
            self.assertEqual(json.loads(data.read_text()), made)
            self.assertIn("[1.5, 2.0, 3.25]", data.read_text())
            self.assertIn("prefers-color-scheme: dark", picture.read_text())


if __name__ == "__main__":
    unittest.main()
