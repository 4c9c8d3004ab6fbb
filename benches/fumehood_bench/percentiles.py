"""From samples to the few numbers that are shown."""

import math


def percentile(samples: list[float], share: float) -> float:
    """The nearest-rank percentile: always a value that was measured, never one in between."""
    if not samples:
        raise ValueError("no samples")
    if not 0 < share <= 1:
        raise ValueError("a percentile is a share above 0 and at most 1")
    ordered = sorted(samples)
    return ordered[math.ceil(share * len(ordered)) - 1]


def summary(samples: list[float]) -> dict[str, float] | None:
    """Milliseconds of samples in seconds; None where nothing was measured."""
    if not samples:
        return None
    return {
        "p50": milliseconds(percentile(samples, 0.50)),
        "p95": milliseconds(percentile(samples, 0.95)),
        "p99": milliseconds(percentile(samples, 0.99)),
        "min": milliseconds(min(samples)),
        "max": milliseconds(max(samples)),
        "mean": milliseconds(math.fsum(samples) / len(samples)),
    }


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
