"""``monograph explain``: a page of 80 columns, or JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import output_of, write_perceptron


def test_the_page_fits_80_columns(tmp_path: Path) -> None:
    model = write_perceptron(tmp_path)
    lines = output_of("explain", model).splitlines()
    assert lines[0] == model
    assert [line for line in lines[1:] if len(line) > 80 or line != line.rstrip()] == []
    for heading in ("stages", "bytes moved a call", "bytes held", "kernels, and why"):
        assert any(heading in line for line in lines), heading


def test_sizes_are_counted_as_asked(tmp_path: Path) -> None:
    model = write_perceptron(tmp_path)
    small = json.loads(output_of("explain", model, "--json", "--size", "batch=2"))
    large = json.loads(output_of("explain", model, "--json", "--size", "batch=200"))
    assert small["sizes"] == {"batch": 2}
    reasons = [[kernel["together"] for kernel in each["kernels"]] for each in (small, large)]
    assert reasons[0] != reasons[1], "bytes that are not written are those of the sizes, too"
    assert large["memory"]["peak"] > small["memory"]["peak"]


def test_a_saved_program_is_explained_as_far_as_it_knows(tmp_path: Path) -> None:
    model, path = write_perceptron(tmp_path), str(tmp_path / "program.mono")
    output_of("compile", model, "-o", path)
    known = json.loads(output_of("explain", model, "--json"))
    loaded = json.loads(output_of("explain", path, "--json"))
    for figure in ("launches", "memory", "fallbacks", "nodes_given"):
        assert loaded[figure] == known[figure], figure
    for stored, made in zip(loaded["kernels"], known["kernels"], strict=True):
        for fact in ("name", "kind", "launches", "nodes", "schedule", "apart"):
            assert stored[fact] == made[fact], fact
        for_all_sizes, at_sizes = stored["together"], made["together"]
        assert [each.split(":")[0] for each in for_all_sizes] == [
            each.split(":")[0] for each in at_sizes
        ]
        assert all("batch bytes" in each for each in for_all_sizes), for_all_sizes
    assert "launches" in output_of("explain", path)


def test_kernels_have_times_and_passes_what_they_bought(tmp_path: Path) -> None:
    model = write_perceptron(tmp_path)
    found = json.loads(output_of("explain", model, "--json"))
    timed = [each for each in found["kernels"] if each["launches"]]
    assert timed and all(each["seconds"] > 0 for each in timed)
    assert sum(each["share"] for each in timed) <= 1
    assert found["roofline"]["flops"] > 0
    assert {step["name"].partition("{")[0] for step in found["steps"]} >= {"lower_composites"}
    page = output_of("explain", model)
    assert "what each pass bought" in page and "of it" in page
    assert f"  {'inputs':<13}x: f32[batch, 8]" in page
    rows = page.partition("where the time goes")[2].partition("\n\n")[0].splitlines()[1:]
    shares = [float(row.split("%")[0].split()[-1]) for row in rows]
    assert len(rows) == len(timed) and shares == sorted(shares, reverse=True)
    more = found["launches"] - found["steps"][-1]["after"]["kernels"]
    assert (f"or put results together, beside: {more}" in page) == (more > 0)
    plain = json.loads(output_of("explain", model, "--json", "--no-measure"))
    assert plain["roofline"] is None and plain["kernels"][0]["seconds"] is None
