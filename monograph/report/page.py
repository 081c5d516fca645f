"""One HTML file that needs nothing else: the page's script and style, and the data packed inside.

Data is compressed and written as base64, so that nothing a model calls its nodes can end a script
or begin a tag; the page puts every string into the document as text. A content security policy
forbids the page to load or send anything, whatever is in it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from functools import cache
from importlib.resources import files

from monograph.report.data import ReportData
from monograph.runtime.bundle import Json

SCRIPT = "page.js"
STYLE = "page.css"


@cache
def asset(name: str) -> str:
    """A built file of the page (``make page`` builds them)."""
    return (files("monograph.report") / "assets" / name).read_text(encoding="utf-8")


def page_html(data: ReportData, *, live: str | None = None) -> str:
    """The page. ``live`` is the address that edits are sent to; None for a file on its own."""
    title = html.escape(str(data.facts["model"])).encode("utf-8", "replace").decode()
    script, style = asset(SCRIPT), asset(STYLE)
    packed = {"facts": pack(data.facts)}
    for each in data.listings:
        packed[f"listing-{each.stage}"] = pack(dict(each.parts))
    blocks = "\n".join(
        f'<script type="text/plain" id="data-{name}">{text}</script>'
        for name, text in packed.items()
    )
    connect = "'none'" if live is None else "'self'"
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src 'unsafe-inline'; "
        f"img-src data:; worker-src blob:; connect-src {connect}; base-uri 'none'; "
        "form-action 'none'"
    )
    setting = "" if live is None else f' data-live="{html.escape(live)}"'
    return f"""<!doctype html>
<html lang="en"{setting}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title} · Monograph</title>
<style>{style}</style>
</head>
<body>
<noscript>This report draws itself with JavaScript: please allow it for this file.</noscript>
{blocks}
<script type="module">{script}</script>
</body>
</html>
"""


def pack(value: Json) -> str:
    """JSON, compressed, as base64; the page unpacks it. The same value gives the same text."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode()


def unpack(text: str) -> Json:
    """What ``pack`` packed."""
    found: Json = json.loads(gzip.decompress(base64.b64decode(text)))
    return found


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
