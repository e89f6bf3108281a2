"""Counts the pages of each visit to a site; pages that come too late are written apart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
import bytewax.operators.windowing as windowing  # pyright: ignore[reportMissingImports]
from bytewax.connectors.files import FileSink, FileSource  # pyright: ignore[reportMissingImports]
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from msgspec import Struct, json

PAGES = str(Path(__file__).parents[3] / "examples" / "data" / "pages.jsonl")


class Page(Struct):
    id: int
    user: str
    at: int


class Session(Struct):
    user: str
    window_start: int
    window_end: int
    pages: int


def moment(page: Page) -> datetime:
    return datetime.fromtimestamp(page.at / 1e6, UTC)


def spanned(pair: tuple[str, Any]) -> tuple[str, str]:
    user, (_, (begin, end, pages)) = pair
    return user, json.encode(Session(user, begin, end + 300_000_000, pages)).decode()


def flow(pages: str = PAGES, out: str = "sessions") -> Dataflow:
    flow = Dataflow("sessions")
    lines = op.input("pages", flow, FileSource(Path(pages)))
    seen = op.key_on("by-user", op.map("parsed", lines, json.Decoder(Page).decode), lambda page: page.user)
    counted = windowing.fold_window(
        "sessions",
        seen,
        windowing.EventClock(moment, wait_for_system_duration=timedelta(minutes=1)),
        windowing.SessionWindower(gap=timedelta(minutes=5)),
        lambda: (2**63, 0, 0),
        lambda span, page: (min(span[0], page.at), max(span[1], page.at), span[2] + 1),
        lambda one, two: (min(one[0], two[0]), max(one[1], two[1]), one[2] + two[2]),
    )
    op.output("counted", op.map("spans", counted.down, spanned), FileSink(Path(f"{out}.jsonl")))
    late = op.map("late-lines", counted.late, lambda pair: (pair[0], json.encode(pair[1][1]).decode()))
    op.output("late", late, FileSink(Path(f"{out}-late.jsonl")))
    return flow
