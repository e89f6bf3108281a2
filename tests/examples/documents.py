"""The documents, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {
    path: path.read_text(encoding="utf-8") for path in (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")))
}
"""All documents, by path."""
BLOCK = re.compile(r"(?ms)(?:<!-- (?P<origin>\S+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$")


def command_lines(documents: Iterable[Path] = TEXTS) -> Iterator[str]:
    """Lines of blocks without a language, without paths of the virtual environment; continued lines are joined."""
    for document in documents:
        for block in BLOCK.finditer(TEXTS[document]):
            if block["language"] == "":
                for line in block["text"].replace("\\\n", " ").splitlines():
                    yield line.removeprefix(".venv/bin/")
