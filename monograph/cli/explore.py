"""``monograph explore``: the report, live, on this machine alone."""

from __future__ import annotations

from typing import Annotated

import typer

from monograph.cli import common


def explore(
    model: common.ModelName,
    types: common.Types = None,
    level: common.Level = "O2",
    target: common.TargetName = None,
    threads: common.Threads = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    sizes: common.Sizes = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")
    ] = 0,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1.0, help="Seconds that compiling an edit may take.")
    ] = 60.0,
) -> None:
    """Serve a model's report live: edit its graph or its passes, and see what becomes of it.

    Open the address that it prints; nobody without that address can use it. Ctrl-C ends it.

    - monograph explore model.onnx
    - monograph explore net.py:model --input 'f32[1, 64]' --port 8080
    """
    from monograph.inspect.inputs import parse_sizes
    from monograph.report.explorer import Explorer, Opening
    from monograph.report.server import ExplorerServer

    opening = Opening(
        model,
        tuple(types or ()),
        common.level_name(level),
        threads,
        passes,
        tuple(plugins or ()),
        parse_sizes(sizes or ()),
        target,
    )
    explorer = Explorer(opening, timeout)
    try:
        with ExplorerServer(explorer, port) as server:
            with common.showing_progress("compiling"):
                server.open()
            print(f"{server.address}\nCtrl-C ends it.", flush=True)
            server.serve_forever()
    except KeyboardInterrupt:
        print("ended")
    finally:
        explorer.close()
