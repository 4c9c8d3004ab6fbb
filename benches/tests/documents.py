"""A results document for tests, small but with everything that targets and reports read."""


def cell(contender: str, program: str, mode: str = "closed", p50: float = 100.0, **changes: object) -> dict:
    return {
        "contender": contender, "program": program, "mode": mode, "clients": 1, "runs": 100,
        "failures": 0, "errors": {}, "runs_per_second": 1.0,
        "milliseconds": {"p50": p50, "p95": p50 * 1.5, "p99": p50 * 2, "min": p50, "max": p50 * 2, "mean": p50},
        "served": {"start": {}, "dataset_mount": {}}, "samples": [p50],
    } | changes


def contender(name: str, has_pool: bool = False, unavailable: str | None = None) -> dict:
    return {"name": name, "title": name, "isolation": "a container", "note": "", "has_pool": has_pool,
            "unavailable": unavailable}


def document() -> dict:
    """Everything was measured and every target is reached, some of them exactly."""
    return {
        "date": "2030-01-02T03:04:05Z",
        "facts": {
            "host": {"processor": "a processor", "cores": 2, "memory_gib": 8.0, "kernel": "6.1",
                     "system": "Debian", "load_before": 0.1},
            "engine": {"version": "20.10", "runtime": "runc", "storage": "overlay2", "cgroup_version": "1"},
            "daemon": {"version": "0.1.0", "commit": "0123456789abcdef", "build": "release"},
            "versions": {"image": {"python": "3.11", "pandas": "2", "scikit-learn": "1"}, "llm-sandbox": "0.3"},
        },
        "settings": {"runs": 100, "rounds": 5, "clients": [1], "pool_size": 8, "concurrent_runs": 8},
        "warnings": [],
        "load_after": 0.2,
        "programs": [{"name": "hello", "title": '`print("hello")`'}, {"name": "train", "title": "training"}],
        "contenders": [contender("bare-python"), contender("docker-run"), contender("fumehood-cold"),
                       contender("fumehood-warm", True), contender("fumehood-preloaded", True)],
        "cells": [
            cell("bare-python", "hello", p50=20), cell("bare-python", "train", p50=1200),
            cell("docker-run", "hello", p50=400), cell("docker-run", "train", p50=1400),
            cell("fumehood-cold", "hello", p50=260), cell("fumehood-cold", "train", p50=1000),
            cell("fumehood-warm", "hello", p50=90), cell("fumehood-warm", "hello", "paced", p50=20),
            cell("fumehood-preloaded", "train", "paced", p50=20,
                 served={"start": {"preloaded": 99, "cold": 1}, "dataset_mount": {"placed": 100}}),
        ],
        "figures": {
            "sustained": {"clients": 8, "program": "hello", "unavailable": {},
                          "runs_per_second": {"engine-loop": 10.0, "fumehood-warm": 9.5},
                          "failures": {"engine-loop": 0, "fumehood-warm": 0}},
            "accepting": {"clients": 32, "accepted": 20000, "refused": 0, "socket_errors": 0,
                          "accepted_per_second": 2000.0, "milliseconds": {"p50": 10.0, "p95": 12.0, "p99": 20.0},
                          "in_store_after_kill": 20010, "all_durable": True},
            "memory": {"idle_mib": {"rss": 40.0, "pss": 39.0}, "loaded_mib": {"rss": 59.9, "pss": 58.0},
                       "floods": 8, "waiting": 1000, "seconds": 15},
            "hot-calls": {"finished_runs": {"empty": 1, "full": 100000},
                          "calls": {"get": {"empty": {"p50": 1.0, "p99": 2.0}, "full": {"p50": 1.2, "p99": 2.0}}}},
        },
    }
