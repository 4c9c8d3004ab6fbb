"""How full a pool is, as far as the daemon tells."""

import tomllib
import unittest

from fumehood_bench.contenders.fumehood import fill, is_full
from fumehood_bench.daemon import further_settings, merged, toml


class Told:
    """A daemon that answers with fixed bodies."""

    def __init__(self, **answers: dict):
        self.answers = answers

    def call(self, _method: str, path: str) -> tuple[int, dict]:
        return 200, self.answers.get(path.strip("/"), {})


class PoolTest(unittest.TestCase):
    def test_either_call_may_tell(self) -> None:
        for daemon in (Told(ready={"pool": {"size": 8, "waiting": 3}}),
                       Told(settings={"pool": {"size": 8, "ready": 3}})):
            self.assertEqual(fill(daemon), (3, 8))
            self.assertFalse(is_full(daemon))
        self.assertTrue(is_full(Told(ready={"pool": {"size": 8, "idle": 8}})))

    def test_a_daemon_that_does_not_tell_is_not_guessed_at(self) -> None:
        self.assertIsNone(fill(Told(ready={"status": "ready"}, settings={"pool": True})))
        self.assertIsNone(fill(Told(settings={"pool": {"size": 8}})))


class ConfigurationTest(unittest.TestCase):
    def test_what_concerns_pools_goes_to_daemons_with_one(self) -> None:
        given = ("pool.memory_mb=4096", 'execution.runtime="runsc"', "app.name=plain text")
        rest = {"execution": {"runtime": "runsc"}, "app": {"name": "plain text"}}
        self.assertEqual(further_settings(given, with_pool=False), rest)
        self.assertEqual(further_settings(given, with_pool=True), rest | {"pool": {"memory_mb": 4096}})

    def test_later_layers_win_key_by_key(self) -> None:
        self.assertEqual(merged({"pool": {"size": 1, "preload": []}}, {"pool": {"size": 2}}),
                         {"pool": {"size": 2, "preload": []}})

    def test_settings_are_written_as_toml(self) -> None:
        text = toml({"pool": {"size": 8, "preload": ["pandas"]}, "api": {"listen": 'a"b', "on": True}})

        self.assertEqual(tomllib.loads(text),
                         {"pool": {"size": 8, "preload": ["pandas"]}, "api": {"listen": 'a"b', "on": True}})


if __name__ == "__main__":
    unittest.main()
