"""How long clients wait."""

from __future__ import annotations

ANSWER_S = 10.0
"""For the answer to a request, with all its repetitions. Then the broker counts as away."""
HOLD_MS = 100
"""A broker holds its answer to who asks for messages back until there are some, or so long."""
RETRY_MS = 1
"""Before a request is repeated. Brokers refuse the first requests of a transaction while they end the one before: with
the default of 100 ms a transaction takes 30 to 110 ms, with this 4 to 10."""
TRANSACTION_S = 60.0
"""After so long the broker aborts a transaction that was not ended: what others read waits for it."""
LINGER_MS = 5
"""Messages wait for others so long, and not at all once a transaction ends."""
