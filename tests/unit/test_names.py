"""One name, one thing: no two public classes of the project have the same name, wire types among them."""

from __future__ import annotations

import ast
import os
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
