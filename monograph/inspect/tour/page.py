"""How the tour prints: a question, what was done, what came out; at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text


class Page:
    """A column of text, tables and graphs on a console."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.width = min(self.console.width, 80)

    def chapter(self, title: str, question: str) -> None:
        """Open a chapter with the question that it answers."""
        self.console.print()
        self.console.print(Rule(Text(title, style="bold"), align="left"), width=self.width)
        self.console.print(Text(f"Q  {question}", style="bold cyan"), width=self.width)
        self.console.print()

    def say(self, text: str) -> None:
        """A paragraph."""
        self.console.print(Text(text), width=self.width)
        self.console.print()

    def answer(self, text: str) -> None:
        """The answer to the chapter's question."""
        self.console.print(Text(f"A  {text}", style="green"), width=self.width)
        self.console.print()

    def code(self, text: str, language: str = "text") -> None:
        """A listing."""
        syntax = Syntax(text, language, background_color="default", word_wrap=True)
        self.console.print(Padding(syntax, (0, 0, 1, 2)), width=self.width)

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table; numbers stand at the right."""
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for column, heading in enumerate(headings):
            numeric = bool(rows) and all(isinstance(row[column], int | float) for row in rows)
            table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(str(cell) for cell in row))
        self.console.print(Padding(table, (0, 0, 1, 2)), width=self.width)
