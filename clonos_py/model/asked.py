"""The kinds of what users' functions get besides their rows, under the names that tests of jobs have for them: the
time, random numbers, answers of services, and timers that fire."""

from __future__ import annotations

TIMES, DRAWS, ANSWERS, TIMERS = "times", "draws", "answers", "timers"
KINDS = (TIMES, DRAWS, ANSWERS, TIMERS)
