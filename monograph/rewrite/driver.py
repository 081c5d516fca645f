"""Applies rules to a graph until none applies.

Nodes wait in a queue, in order of evaluation, and each is shown to the rules whose root is its op.
When a rule fires, the new nodes, and the nodes that read what was replaced, are queued again; the
graph is never swept. The time taken grows with the number of nodes and of rewrites, not with their
product. Regions take part like any other graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from time import perf_counter
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.errors import PassError, TypeRuleError
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import Op
from monograph.rewrite.rule import Rule

REWRITES_PER_NODE = 32
"""Rewrites that a node may have, and each of its operands: an op of many may become as many ops."""


@dataclass(slots=True)
class RuleCount:
    """How often a rule was tried, fired, or was refused, and the seconds that it took.

    It is *refused* when its replacement would have another type than what it replaces.
    """

    attempts: int = 0
    hits: int = 0
    refused: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class RewriteReport:
    """What a run of the driver did, rule by rule, in the order in which the rules were given."""

    rules: Mapping[str, RuleCount]

    @property
    def changed(self) -> bool:
        """Whether any rule fired."""
        return any(count.hits for count in self.rules.values())

    @property
    def counters(self) -> dict[str, int]:
        """The hits of each rule that fired, and ``refused`` if any was."""
        hits = {name: count.hits for name, count in self.rules.items() if count.hits}
        refused = sum(count.refused for count in self.rules.values())
        return {**hits, "refused": refused} if refused else hits


Watcher: TypeAlias = Callable[[Rule, Node, tuple[Value, ...]], bool]
_WATCHER: ContextVar[Watcher | None] = ContextVar("rewrite watcher", default=None)


@contextmanager
def watch_rewrites(watcher: Watcher) -> Iterator[None]:
    """See each rewrite before it happens, and veto it by returning False.

    One that watches already is asked first. The watcher gets the rule, the node and the values
    about to replace its results: enough to print a log, or to find the one application that changed
    a model's answer.
    """
    outer = _WATCHER.get()

    def both(rule: Rule, node: Node, values: tuple[Value, ...]) -> bool:
        return (outer is None or outer(rule, node, values)) and watcher(rule, node, values)

    token = _WATCHER.set(both)
    try:
        yield
    finally:
        _WATCHER.reset(token)


@dataclass(frozen=True)
class Application:
    """One rewrite that happened: the rule, the node as it was, and what took its place."""

    rule: str
    node: str
    replacement: str


@contextmanager
def limit_rewrites(limit: int | None = None) -> Iterator[list[Application]]:
    """Let only the first ``limit`` rewrites in this block happen; the list tells which did.

    Halving the limit finds the one rewrite that changed an answer, as LLVM's ``opt-bisect-limit``
    finds a pass.
    """
    done: list[Application] = []

    def watcher(rule: Rule, node: Node, values: tuple[Value, ...]) -> bool:
        if limit is not None and len(done) >= limit:
            return False
        made = [repr(each.producer or each) for each in values]
        done.append(Application(rule.name, repr(node), "; ".join(made)))
        return True

    with watch_rewrites(watcher):
        yield done


def rewrite_graph(graph: Graph, rules: Sequence[Rule], *, during: str) -> RewriteReport:
    """Apply the rules to the graph, in place, until none applies; ``during`` names the pass."""
    driver = _Driver(rules, during)
    driver.run(graph)
    return RewriteReport({rule.name: driver.counts[rule.name] for rule in rules})


@dataclass
class _Driver:
    rules: Sequence[Rule]
    during: str
    counts: dict[str, RuleCount] = field(default_factory=dict)
    _by_op: dict[type[Op], tuple[Rule, ...]] = field(default_factory=dict)
    _queue: deque[Node] = field(default_factory=deque)
    _queued: set[Node] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.counts = {rule.name: RuleCount() for rule in self.rules}
        if len(self.counts) != len(self.rules):
            raise PassError("two rules have one name", during=self.during)

    def run(self, graph: Graph) -> None:
        size = 1
        for node in graph.walk():
            self._push(node)
            size += 1 + len(node.operands)
        remaining = REWRITES_PER_NODE * size
        while self._queue:
            node = self._queue.popleft()
            self._queued.discard(node)
            if _is_live(node) and self._visit(node):
                remaining -= 1
            if not remaining:
                raise self._endless(graph)

    def _visit(self, node: Node) -> bool:
        """Show the node to its rules; whether one of them fired."""
        rules = self._rules_for(type(node.op))
        if not rules:
            return False
        before = node.previous
        with node.graph.inserting_before(node, node.location):
            for rule in rules:
                values = self._attempt(rule, node)
                if values is not None and self._accepts(rule, node, values):
                    self.counts[rule.name].hits += 1
                    self._commit(node, values, _nodes_between(before, node))
                    return True
                if node.previous is not before:
                    _erase_all(_nodes_between(before, node))
        return False

    def _attempt(self, rule: Rule, node: Node) -> tuple[Value, ...] | None:
        count = self.counts[rule.name]
        count.attempts += 1
        start = perf_counter()
        try:
            return rule.apply(node)
        except TypeRuleError:
            count.refused += 1
            return None
        finally:
            count.seconds += perf_counter() - start

    def _accepts(self, rule: Rule, node: Node, values: tuple[Value, ...]) -> bool:
        types = [value.type for value in values]
        if types != [result.type for result in node.results]:
            self.counts[rule.name].refused += 1
            return False
        watcher = _WATCHER.get()
        return watcher is None or watcher(rule, node, values)

    def _commit(self, node: Node, values: tuple[Value, ...], made: list[Node]) -> None:
        """Replace the node, erase what only it needed, and queue what may now be rewritten."""
        users = [user for result in node.results for user in result.users]
        fresh = set(made)
        renames = [
            (new, old.name)
            for old, new in zip(node.results, values, strict=True)
            if new.producer in fresh and _was_named(old)
        ]
        node.graph.replace(node, values)
        for new, name in renames:
            node.graph.rename(new, name)
        self._release([*node.operands, *(result for new in made for result in new.results)])
        for new_node in made:
            self._push_tree(new_node)
        for user in users:
            self._push(user)
        if node.graph.parent is not None:
            self._push(node.graph.parent)  # rules on it may look into its regions

    def _release(self, values: Sequence[Value]) -> None:
        """Erase the producers of values that nobody reads any more, and theirs in turn."""
        pending = list(values)
        while pending:
            value = pending.pop()
            producer = value.producer
            if value.is_used or producer is None or producer.erased:
                continue
            if not producer.is_removable:
                self._push(producer)
                continue
            producer.graph.erase(producer)
            pending.extend(producer.operands)

    def _push(self, node: Node) -> None:
        if node not in self._queued and not node.erased and node is not node.graph.output_node:
            self._queued.add(node)
            self._queue.append(node)

    def _push_tree(self, node: Node) -> None:
        self._push(node)
        for region in node.regions:
            for inner in region.walk():
                self._push(inner)

    def _rules_for(self, cls: type[Op]) -> tuple[Rule, ...]:
        found = self._by_op.get(cls)
        if found is None:
            found = tuple(rule for rule in self.rules if rule.accepts(cls))
            self._by_op[cls] = found
        return found

    def _endless(self, graph: Graph) -> PassError:
        busiest = sorted(self.counts.items(), key=lambda item: -item[1].hits)[:3]
        fired = ", ".join(f"{name} ({count.hits} times)" for name, count in busiest if count.hits)
        return PassError(
            "the rewrite does not come to an end",
            expected=f"at most {REWRITES_PER_NODE} rewrites a node or operand in @{graph.name}",
            found=fired,
            during=self.during,
            hint="two of these rules probably undo each other",
        )


def _is_live(node: Node) -> bool:
    """Whether a node is still in the graph and its results are used."""
    if node.erased or not node.is_used:
        return False
    parent = node.graph.parent
    while parent is not None:
        if parent.erased:
            return False
        parent = parent.graph.parent
    return True


def _was_named(value: Value) -> bool:
    """Whether somebody chose the value's name: it is not just its op's name and a number."""
    stem, _, number = value.name.rpartition("_")
    plain = stem if number.isdigit() and stem else value.name
    return value.producer is None or plain != value.producer.op.name


def _nodes_between(before: Node | None, end: Node) -> list[Node]:
    """The nodes after ``before`` (None: from the first) and before ``end``."""
    found: list[Node] = []
    node = end.previous
    while node is not None and node is not before:
        found.append(node)
        node = node.previous
    return found[::-1]


def _erase_all(nodes: Sequence[Node]) -> None:
    for node in reversed(nodes):
        node.graph.erase(node)
