"""One name, one thing: no two public classes of the project have the same name, wire types among them. Checkpoint
protocols are named in few places."""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from pathlib import Path

import clonos_py

ALONE = Path("bench", "peers", "user_jobs")
"""Programs for another engine. Each runs alone, as an example does, and its rows are named as those of the example."""


def test_no_two_public_classes_have_the_same_name() -> None:
    places: defaultdict[str, set[str]] = defaultdict(set)
    for folder, _, files in os.walk(Path(clonos_py.__file__).parent, followlinks=True):
        if Path(folder).parts[-len(ALONE.parts) :] == ALONE.parts:
            continue
        for file in sorted(name for name in files if name.endswith(".py")):
            for node in ast.parse(Path(folder, file).read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].add(f"{folder}/{file}")
    assert len(places) > 500
    assert not {name: found for name, found in places.items() if len(found) > 1}


NAMES = re.compile(
    r"\b(?:unaligned|uncoordinated|induced|UNALIGNED|UNCOORDINATED|INDUCED|protocols\.aligned)\b|protocol aligned"
)
NAMED_IN = {
    "settings/protocols.py": "the definition of the setting",
    "cli/sim.py": "help",
    "job/state_mapping.py": "a remedy in a message",
    "channel/stamps.py": "a reference to another module",
    "evaluation/checkmate/paper.py": "the figures of the paper",
}


def test_a_checkpoint_protocol_is_named_in_its_folder_and_where_users_read_it() -> None:
    """Everything else asks its properties. So another protocol is another folder, and one line."""
    package, named = Path(clonos_py.__file__).parent, set[str]()
    for folder, _, files in os.walk(package, followlinks=True):
        place = Path(folder).relative_to(package)
        if place.parts[:1] not in {("protocols",), ("bench",)}:
            named.update(
                str(place / name)
                for name in files
                if name.endswith(".py") and NAMES.search(Path(folder, name).read_text(encoding="utf-8"))
            )
    assert named == NAMED_IN.keys()
