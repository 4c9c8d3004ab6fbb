"""When a failed exchange is tried again, and after how long."""

from __future__ import annotations

import random
from dataclasses import dataclass

from fumehood.errors import ApiError, FumehoodError, TransportError

# Besides a broken connection: what the daemon, or a proxy before it, says for the time being.
_PASSING = frozenset({408, 429, 502, 503, 504})


@dataclass(frozen=True)
class RetryPolicy:
    """Tries again what may succeed later.

    Every request may be repeated: submissions have an idempotency key.

    Attributes:
        attempts: The first one included.
        first_delay: Seconds before the second attempt; each further delay is twice as long.
        longest_delay: Seconds. If the daemon asks to stay away for longer, its error is raised.
    """

    attempts: int = 7
    first_delay: float = 0.25
    longest_delay: float = 8.0

    def delay(self, failure: FumehoodError, failures: int) -> float:
        """Seconds to wait after the ``failures``-th failure in a row.

        Raises:
            FumehoodError: ``failure`` itself, where another attempt is of no use.
        """
        is_passing = isinstance(failure, TransportError) or (
            isinstance(failure, ApiError) and failure.status in _PASSING
        )
        asked = (failure.retry_after if isinstance(failure, ApiError) else None) or 0.0
        if not is_passing or failures >= self.attempts or asked > self.longest_delay:
            raise failure
        doubled = min(self.first_delay * (1 << (failures - 1)), self.longest_delay)
        # Clients that failed together do not come back together.
        return max(asked, doubled * random.uniform(0.75, 1.0))  # noqa: S311
