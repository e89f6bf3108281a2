"""Timeouts and waiting times of clients."""

from __future__ import annotations

ANSWER_S = 10.0
"""The timeout of a request, with all retries. After it the broker counts as unreachable."""
HOLD_MS = 100
"""How long a broker delays the answer to a fetch request while it has no messages."""
RETRY_MS = 1
"""The wait before a request is retried. Brokers refuse the first requests of a transaction while they end the previous
one. With the default of 100 ms a transaction takes 30 to 110 ms, with this value 4 to 10."""
TRANSACTION_S = 60.0
"""The broker aborts a transaction that is open for longer, because it blocks consumers of the topic."""
LINGER_MS = 5
"""How long messages wait for others to be sent with them. The end of a transaction sends them at once."""
