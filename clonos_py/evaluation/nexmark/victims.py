"""The task of each query to kill in tests of exactly-once results: a stateful one, if the query has any."""

from __future__ import annotations

SOURCE = "source-nexmark"
_TASKS_TO_KILL = {
    **dict.fromkeys(("q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22"), (f"{SOURCE}[0]", f"{SOURCE}[1]")),
    "q3": ("join[0]", f"{SOURCE}[1]"),
    "q4": ("averages[0]", "join[1]"),
    "q5": ("counts[0]", "hot[1]"),
    "q6": ("averages[0]", "join[1]"),
    "q7": ("highest[0]", "join[1]"),
    "q8": ("sellers[0]", "join[1]"),
    "q9": ("join[0]", "join[1]"),
    "q11": (f"{SOURCE}[0]", "sessions[1]"),
    "q12": ("counts[0]", "counts[1]"),
    "q15": ("report[0]", f"{SOURCE}[1]"),
    "q16": ("report[0]", "report[1]"),
    "q17": ("report[0]", "report[1]"),
    "q18": ("last[0]", "last[1]"),
    "q19": ("top[0]", "top[1]"),
    "q20": ("join[0]", "join[1]"),
}
"""By query: the task to kill at parallelism 1, and at parallelism 2."""


def task_to_kill(query: str, parallelism: int) -> str:
    """The name of the task to kill, such as ``join[0]``; ``parallelism`` is 1 or 2."""
    return _TASKS_TO_KILL[query][parallelism - 1]
