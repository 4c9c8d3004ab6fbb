"""Targets are judged by their limits, by nothing that is missing, and never past a failure."""

import unittest

from fumehood_bench.targets import judge
from tests.documents import document


def verdicts(changed: dict) -> dict[str, bool | None]:
    return {target.name: target.reached for target in judge(changed)}


class TargetsTest(unittest.TestCase):
    def test_limits_are_inclusive_where_they_say_so(self) -> None:
        self.assertEqual(set(verdicts(document()).values()), {True})

    def test_each_target_can_be_missed(self) -> None:
        def slower(contender: str, program: str, mode: str, factor: float):
            def change(changed: dict) -> None:
                for cell in changed["cells"]:
                    if (cell["contender"], cell["program"], cell["mode"]) == (contender, program, mode):
                        cell["milliseconds"]["p50"] *= factor
            return change

        def tail(changed: dict) -> None:
            for cell in changed["cells"]:
                cell["milliseconds"]["p99"] = cell["milliseconds"]["p50"] * 3.01

        def figure(*path: str, value: object):
            def change(changed: dict) -> None:
                place = changed["figures"]
                for key in path[:-1]:
                    place = place[key]
                place[path[-1]] = value
            return change

        cases = {
            "scikit-learn, preloaded, to bare subprocess": slower("fumehood-preloaded", "train", "paced", 1.01),
            "scikit-learn, preloaded, to `docker run --rm`": slower("docker-run", "train", "closed", 0.99),
            "trivial, warm, to bare subprocess": slower("fumehood-warm", "hello", "paced", 1.01),
            "trivial, warm, p99 to p50": tail,
            "trivial, cold, to `docker run --rm`": slower("fumehood-cold", "hello", "closed", 1.01),
            "sustained runs/s, warm, to raw engine loop":
                figure("sustained", "runs_per_second", "fumehood-warm", value=9.49),
            "accepting, each run durable": figure("accepting", "all_durable", value=False),
            "daemon's memory, idle": figure("memory", "idle_mib", "rss", value=40.1),
            "… with 1,000 waiting and 8 floods": figure("memory", "loaded_mib", "rss", value=60.0),
            "hot calls, full store to empty store": figure("hot-calls", "calls", "get", "full", value={"p50": 1.21}),
        }
        self.assertEqual(list(cases), list(verdicts(document())))
        for name, change in cases.items():
            changed = document()
            change(changed)
            self.assertIs(verdicts(changed)[name], False, name)

    def test_a_failed_run_of_ours_reaches_nothing(self) -> None:
        changed = document()
        for cell in changed["cells"]:
            cell["failures"] = 1
        reached = verdicts(changed)
        self.assertIs(reached["trivial, warm, to bare subprocess"], False)
        self.assertIs(reached["scikit-learn, preloaded, to bare subprocess"], False)

    def test_runs_that_did_not_come_from_the_pool_are_not_the_warm_path(self) -> None:
        changed = document()
        changed["cells"][-1]["served"]["start"] = {"preloaded": 98, "cold": 2}
        found = {target.name: target for target in judge(changed)}
        target = found["scikit-learn, preloaded, to bare subprocess"]
        self.assertIs(target.reached, False)
        self.assertIn("2 of 100 runs were not preloaded", target.measured)

    def test_what_was_not_measured_is_unknown_and_says_why(self) -> None:
        changed = document()
        changed["cells"], changed["figures"] = [], {"accepting": {"unavailable": "no wrk"}}
        changed["contenders"][3]["unavailable"] = "the daemon refuses"
        found = judge(changed)
        self.assertEqual({target.reached for target in found}, {None})
        told = {target.name: target.measured for target in found}
        self.assertIn("no wrk", told["accepting, each run durable"])
        self.assertIn("the daemon refuses", told["trivial, warm, p99 to p50"])


if __name__ == "__main__":
    unittest.main()
