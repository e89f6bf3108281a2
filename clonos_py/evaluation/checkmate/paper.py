"""The figures of CheckMate (Siachamis et al., ICDE 2024, section VII), by workers, protocol and query."""

from __future__ import annotations

from collections.abc import Mapping

from clonos_py.settings.protocols import ALIGNED, INDUCED, UNCOORDINATED

_COOR, _UNC, _CIC = ALIGNED.name, UNCOORDINATED.name, INDUCED.name

Figures = Mapping[tuple[int, str], Mapping[str, str]]
"""Values as printed in the paper, by workers and protocol, then by query."""


def _row(*values: str) -> dict[str, str]:
    return dict(zip(("q1", "q3", "q8", "q12"), values, strict=True))


OVERHEAD: Figures = {
    (10, _COOR): _row("1.00", "1.00", "1.00", "1.00"),
    (10, _UNC): _row("1.00", "1.00", "1.00", "1.00"),
    (10, _CIC): _row("2.10", "1.82", "1.74", "1.79"),
    (50, _COOR): _row("1.00", "1.00", "1.00", "1.00"),
    (50, _UNC): _row("1.00", "1.01", "1.01", "1.00"),
    (50, _CIC): _row("2.53", "2.58", "2.49", "2.58"),
}
"""Table II: bytes of messages per byte without checkpoints."""

INVALID: Figures = {
    (10, _COOR): _row("240 (0%)", "400 (0%)", "360 (0%)", "240 (0%)"),
    (10, _UNC): _row("303 (0%)", "455 (4%)", "384 (2%)", "282 (3%)"),
    (10, _CIC): _row("285 (0%)", "471 (3%)", "386 (3%)", "282 (4%)"),
    (50, _COOR): _row("1200 (0%)", "2000 (0%)", "1800 (0%)", "1200 (0%)"),
    (50, _UNC): _row("1437 (0%)", "2399 (3%)", "1924 (2%)", "1446 (3%)"),
    (50, _CIC): _row("1428 (0%)", "2517 (4%)", "1920 (3%)", "1451 (3%)"),
}
"""Table III: the total number of checkpoints, and the share of invalid ones."""

CYCLIC: Mapping[tuple[int, str], Mapping[str, str]] = {
    (5, _UNC): {"CT": "0.01 ms", "RT": "620 ms", "IC": "1.4%"},
    (5, _CIC): {"CT": "2.73 ms", "RT": "347 ms", "IC": "1.7%"},
    (10, _UNC): {"CT": "1.38 ms", "RT": "344 ms", "IC": "1.4%"},
    (10, _CIC): {"CT": "8.39 ms", "RT": "399 ms", "IC": "1.6%"},
}
"""Table IV: checkpointing time, restart time and invalid checkpoints of the cyclic query."""

STATEMENTS: Mapping[str, str] = {
    "7": "COOR as without checkpoints up to 70 workers but in Q3; UNC about 10% below COOR; CIC down to below a half; "
    "Q3: COOR and UNC above 70%, CIC at most 50%",
    "8": "UNC and CIC a few ms; COOR up to a hundred times that in Q3, Q8 and Q12",
    "9": "alike for all protocols before the failure, but for COOR in Q3, which rises with every checkpoint",
    "11": "COOR restarts soonest; UNC and CIC take up to 10 times as long with 100 workers. In Q1 with 10 workers all "
    "recover within about 10 s",
    "12": "COOR worst in both: an order of magnitude with every step of skew at 50% load; UNC and CIC stay low",
    "13": "all protocols alike",
}
"""The paper's statements about figures for which it prints no numbers."""

LABELS: Mapping[str, str] = {_COOR: "COOR", _UNC: "UNC", _CIC: "CIC"}
