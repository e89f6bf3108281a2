"""The parts of pages: a self-contained HTML document of cards with plots and tables, and tables in Markdown.

Texts are escaped here. Only the content of a card or a document is HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from clonos_py.evaluation.plots import style


def document(title: str, heading: str, meta: str, content: Iterable[str]) -> str:
    """The whole document. ``meta``: a line below the heading."""
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{style()}</style></head><body><main>",
            f"<h1>{escape(heading)}</h1>",
            f'<p class="meta">{escape(meta)}</p>',
            *content,
            "</main></body></html>\n",
        ]
    )


def card(title: str, *content: str) -> str:
    return "\n".join([f'<section class="card"><h2>{escape(title)}</h2>', *content, "</section>"])


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """``entries``: the style and the name of each line of a plot."""
    names = "".join(f'<span class="{name_style}">{escape(name)}</span>' for name_style, name in entries)
    return f'<div class="legend">{names}</div>'


def tile(value: str, name: str, note: str) -> str:
    return f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b><span>{escape(note)}</span></div>'


def table(heads: Iterable[str], rows: Iterable[Sequence[str]], name: str = "") -> str:
    """``name``: the style of the first column."""
    first = f' class="{name}"' if name else ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join(
        f"<tr><td{first}>{escape(row[0])}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, ["---"] * len(heads), *rows))
