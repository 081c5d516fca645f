"""Pattern rewriting: rules as pairs of small traced functions, and the driver that applies them."""

from monograph.rewrite.driver import RewriteReport, RuleCount, rewrite_graph, watch_rewrites
from monograph.rewrite.pattern import AnyConstant, Capture, capture
from monograph.rewrite.rule import Match, Rule, rewrite

__all__ = [
    "AnyConstant",
    "Capture",
    "Match",
    "RewriteReport",
    "Rule",
    "RuleCount",
    "capture",
    "rewrite",
    "rewrite_graph",
    "watch_rewrites",
]
