"""A module that was saved answers as it would have: its state, its arguments, its results."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import monograph
from monograph.errors import InputError, MonographError, UnsupportedError
from monograph.runtime.artifact import ArtifactError, read_artifact, write_artifact
from monograph.runtime.bundle import Bundle
from monograph.runtime.compiled import CompiledModule
from monograph.runtime.convention import LoadedModule

torch = pytest.importorskip("torch")

X = torch.linspace(-1, 1, 6).reshape(2, 3)


def compiled(model: Any, *examples: Any, **options: Any) -> CompiledModule:
    made = monograph.compile(model, *examples, cache=False, **options)
    assert isinstance(made, CompiledModule)
    return made


def saved(model: CompiledModule | LoadedModule, folder: Path) -> LoadedModule:
    again = monograph.load(model.save(folder / "model.mono"))
    assert isinstance(again, LoadedModule)
    return again


class Stateful(torch.nn.Module):  # type: ignore[misc]
    """A counter, a cache of what came last, and an average in 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(4, 3))
        self.register_buffer("average", torch.zeros(3, dtype=torch.bfloat16), persistent=False)

    def forward(self, x: Any) -> Any:
        self.count += 1
        self.cache.copy_(torch.cat([self.cache[2:], self.linear(x)]))
        self.average.mul_(0.5).add_(x.mean(0).bfloat16())
        return self.cache.sum(0) * self.count, self.average.float()


class TestState:
    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def test_calls_go_on_where_they_were(self, tmp_path: Path) -> None:
        model = Stateful().eval()
        reference = copy.deepcopy(model)
        first = compiled(model, X)
        for k in range(3):
            first(X * k)
            reference(X * k)
        second = saved(first, tmp_path)
        as_arrays = saved(second, tmp_path)
        for k in range(3, 6):
            expected, found = reference(X * k), first(X * k)
            torch.testing.assert_close(found[0], expected[0])
            torch.testing.assert_close(found[1], expected[1], rtol=0.02, atol=0.02)  # of 8 bits
            assert all(map(torch.equal, second(X * k), found))
            arrays = as_arrays((X * k).numpy())
            assert all(isinstance(each, np.ndarray) for each in arrays)
            assert all(map(np.array_equal, arrays, found))
        third = saved(second, tmp_path)
        assert all(map(torch.equal, third(X), first(X)))

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def test_it_can_be_seen_and_reset(self, tmp_path: Path) -> None:
        first = compiled(Stateful().eval(), X)
        first(X)
        second = saved(first, tmp_path)
        assert set(first.state) == set(second.state) == {"count", "cache", "average"}
        assert first.state["count"] == 1 and second.state["count"] == 1
        first.state["count"].zero_()
        second.state["count"][...] = 0
        torch.testing.assert_close(first(X), second(X))
        assert second.state["count"] == 1

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def test_an_argument_that_is_written_is_written(self, tmp_path: Path) -> None:
        def counted(x: Any, counts: Any) -> Any:
            counts.add_(x > 0)
            return x * 2

        second = saved(compiled(counted, X, torch.zeros(2, 3)), tmp_path)
        counts, array = torch.zeros(2, 3), np.zeros((2, 3), np.float32)
        second(X, counts)
        second(X.numpy(), array)
        assert torch.equal(counts, (X > 0).float())
        assert np.array_equal(array, counts.numpy())
        array.flags.writeable = False
        with pytest.raises(InputError, match="writes to one of its arguments"):
            second(X.numpy(), array)

    def test_random_numbers_follow_the_generator_of_the_arguments(self, tmp_path: Path) -> None:
        first = compiled(lambda x: x + torch.rand(3), X)
        second = saved(first, tmp_path)
        drawn = []
        for model in (first, second):
            torch.manual_seed(3)
            drawn.append(model(X))
        assert torch.equal(*drawn) and not torch.equal(first(X), first(X))
        arrays = []
        for _ in range(2):
            np.random.seed(5)
            arrays.append(second(X.numpy()))
        assert np.array_equal(*arrays)

    def test_state_of_another_type_is_refused(self, tmp_path: Path) -> None:
        path = compiled(Stateful().eval(), X).save(tmp_path / "m.mono")
        bundle = read_artifact(path)
        arrays = dict(bundle.arrays)
        names = dict(bundle.manifest["state"])  # type: ignore[arg-type,call-overload]
        for state, array in [
            (names, {**arrays, "state.cache": np.zeros((4, 4), np.float32)}),
            (names, {**arrays, "state.cache": np.zeros((4, 3))}),
            ({**names, "cache": "nowhere"}, arrays),
            ({**names, "cache": 3}, arrays),
            ({}, arrays),
        ]:
            changed = Bundle({**bundle.manifest, "state": state}, bundle.blobs, array)
            write_artifact(path, changed)
            with pytest.raises(ArtifactError):
                monograph.load(path)

    def test_updates_of_nothing_are_refused(self, tmp_path: Path) -> None:
        path = compiled(Stateful().eval(), X).save(tmp_path / "m.mono")
        bundle = read_artifact(path)
        signature: Any = bundle.manifest["signature"]
        for updates in ([[2, 9]], [[9, 1]], [[-1, 1]], [[2, -1]]):
            changed = {**bundle.manifest, "signature": {**signature, "updates": updates}}
            write_artifact(path, Bundle(changed, bundle.blobs, bundle.arrays))
            with pytest.raises(ArtifactError, match="cannot be read"):
                monograph.load(path)


class TestArguments:
    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def test_defaults_and_names_are_those_of_the_module(self, tmp_path: Path) -> None:
        class Scaled(torch.nn.Module):  # type: ignore[misc]
            def forward(
                self, x: Any, scale: float = 2.0, mask: Any = None, *, sizes: Any = (1, 3)
            ) -> Any:
                y = (x * scale).reshape(-1, *sizes)
                return y if mask is None else y * mask

        for given in (((X,), {}), ((X, 2.0), {"sizes": (1, 3)}), ((X, 2.0, None), {})):
            first = compiled(Scaled(), *given[0], kwargs=given[1])
            for model in (first, saved(first, tmp_path)):
                expected = Scaled()(X)
                for named in ({}, {"scale": 2.0}, {"mask": None}, {"sizes": (1, 3)}):
                    assert torch.equal(model(X, **named), expected)
                assert torch.equal(model(x=X, scale=2.0), expected)
                assert torch.equal(model(X, 2.0, None), expected)
                for wrong in ({"scale": 3.0}, {"bogus": 1}, {"x": X}, {"sizes": (3, 1)}):
                    with pytest.raises(MonographError):
                        model(X, **wrong)
                with pytest.raises(MonographError, match="x"):
                    model()

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def test_nested_arguments_and_none(self, tmp_path: Path) -> None:
        class Pair(NamedTuple):
            left: Any
            right: Any

        def nested(batch: Any, pair: Any, extra: Any = None) -> Any:
            return batch["b"][0] - batch["a"] * pair.left + pair.right

        batch = {"b": [X, None], "a": X + 1}
        first = compiled(nested, batch, Pair(X, X * 2))
        again = {"a": X + 1, "b": [X, None]}
        for model in (first, saved(first, tmp_path)):
            expected = nested(batch, Pair(X, X * 2))
            assert torch.equal(model(again, Pair(X, X * 2)), expected)
            assert torch.equal(model(again, pair=Pair(X, X * 2), extra=None), expected)

    def test_a_default_that_no_file_holds_need_not_be_given(self, tmp_path: Path) -> None:
        def shifted(x: Any, by: Any = X) -> Any:
            return x + by

        second = saved(compiled(shifted, X), tmp_path)
        assert torch.equal(second(X), X + X)
        with pytest.raises(MonographError, match="by"):
            second(X, by=torch.zeros(2, 3))

    @pytest.mark.parametrize(
        "change",
        [
            {"signature": [["x", "SIDEWAYS", None]]},
            {"signature": [["not a name", "KEYWORD_ONLY", None]]},
            {"signature": [["x", "KEYWORD_ONLY", None], ["x", "KEYWORD_ONLY", None]]},
            {"signature": [["x", "KEYWORD_ONLY", [{"kind": "leaf"}, []]]]},
            {"signature": [["x", "KEYWORD_ONLY", [{"kind": "leaf"}, [[]]]]]},
            {"positional": "1"},
            {"named": [1]},
        ],
        ids=str,
    )
    def test_parameters_that_are_none_are_refused(
        self, change: dict[str, Any], tmp_path: Path
    ) -> None:
        path = compiled(lambda x: x + 1, X).save(tmp_path / "m.mono")
        bundle = read_artifact(path)
        call: Any = bundle.manifest["call"]
        changed = {**call, "parameters": {**call["parameters"], **change}}
        write_artifact(
            path, Bundle({**bundle.manifest, "call": changed}, bundle.blobs, bundle.arrays)
        )
        with pytest.raises(ArtifactError):
            monograph.load(path)


class Named(NamedTuple):
    """Fields that are called like methods of a tuple, too."""

    count: Any
    second: Any


@dataclasses.dataclass
class Output:
    """A result with a field that is left empty."""

    logits: Any
    hidden: Any = None


torch.export.register_dataclass(Output)


class TestResults:
    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def test_dicts_keep_their_order(self, tmp_path: Path) -> None:
        def ordered(x: Any) -> Any:
            return {"z": x, "a": {"n": x * 2, "b": x * 3}, "m": None}

        first = compiled(ordered, X)
        second = saved(first, tmp_path)
        for given in (X, X.numpy()):
            found = second(given)
            assert list(found) == ["z", "a", "m"] and list(found["a"]) == ["n", "b"]
            np.testing.assert_array_equal(found["a"]["b"], X.numpy() * 3)
        assert list(first(X)) == ["z", "a", "m"]

    def test_dicts_of_a_traced_function_keep_their_order(self, tmp_path: Path) -> None:
        function = monograph.compile(lambda x: {"z": x, "a": x + 1.0}, "f32[3]", cache=False)
        again = monograph.load(function.save(tmp_path / "f.mono"))
        x = np.float32([1, 2, 3])
        for model in (function, again):
            found = model(x)  # type: ignore[operator,unused-ignore]
            assert list(found) == ["z", "a"]
            np.testing.assert_array_equal(found["a"], x + 1)

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def test_named_tuples_have_their_names(self, tmp_path: Path) -> None:
        second = saved(compiled(lambda x: (Named(x, x + 1), x.max(0)), X), tmp_path)
        named, largest = second(X)
        assert isinstance(named, tuple) and type(named).__name__ == "Named"
        assert named._fields == ("count", "second")
        assert torch.equal(named.count, X) and torch.equal(named[1], X + 1)
        assert torch.equal(largest.values, X.max(0).values)
        assert torch.equal(largest.indices, X.max(0).indices)

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def test_dataclasses_have_their_fields(self, tmp_path: Path) -> None:
        second = saved(compiled(lambda x: Output(x * 2), X), tmp_path)
        found = second(X)
        assert torch.equal(found.logits, X * 2) and found.hidden is None
        assert torch.equal(found["logits"], found[0]) and list(found) == ["logits"]
        assert not hasattr(found, "bogus")

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def test_outputs_of_transformers_are_read_as_they_were(self, tmp_path: Path) -> None:
        transformers = pytest.importorskip("transformers")
        config = transformers.BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
        )
        model = transformers.BertModel(config).eval()
        ids = torch.arange(8)[None]
        second = saved(compiled(model, kwargs={"input_ids": ids}), tmp_path)
        expected, found = model(ids), second(input_ids=ids)
        assert list(found) == list(expected) and len(found) == len(expected)
        torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state)
        torch.testing.assert_close(found["pooler_output"], expected["pooler_output"])
        torch.testing.assert_close(found[0], expected[0])
        assert found.hidden_states is None
        torch.testing.assert_close(second(ids)[:2], expected.to_tuple()[:2])

    def test_words_and_numbers(self, tmp_path: Path) -> None:
        second = saved(
            compiled(lambda x: {"kind": "plain", "rows": x.shape[0], "x": x}, X), tmp_path
        )
        found = second(X)
        assert found["kind"] == "plain" and found["rows"] == 2 and torch.equal(found["x"], X)


class TestRefusal:
    def test_a_class_that_only_torch_takes_apart_is_named(self, tmp_path: Path) -> None:
        class Box:
            def __init__(self, inside: Any) -> None:
                assert not isinstance(inside, int), "it minds what it holds"
                self.inside = inside

        key = torch.utils._pytree.GetAttrKey("inside")
        torch.utils._pytree.register_pytree_node(
            Box,
            lambda box: ([box.inside], None),
            lambda values, _: Box(*values),
            flatten_with_keys_fn=lambda box: ([(key, box.inside)], None),
        )
        try:
            returning = compiled(lambda x: Box(x + 1), X)
            assert torch.equal(returning(X).inside, X + 1)
            with pytest.raises(UnsupportedError, match=r"returns a .*Box") as raised:
                returning.save(tmp_path / "m.mono")
            assert "executable.save" in str(raised.value)
            taking = compiled(lambda box: box.inside + 1, Box(X))
            with pytest.raises(UnsupportedError, match=r"takes a .*Box"):
                taking.save(tmp_path / "m.mono")
        finally:
            torch.utils._pytree._deregister_pytree_node(Box)
        assert not (tmp_path / "m.mono").exists()

    def test_a_value_that_no_file_holds_is_named(self, tmp_path: Path) -> None:
        model = compiled(lambda x, most: x.clamp(max=most), X, float("inf"))
        assert torch.equal(model(X, float("inf")), X)
        with pytest.raises(UnsupportedError, match="most = inf"):
            model.save(tmp_path / "m.mono")

    def test_a_field_that_begins_with_an_underscore_is_named(self, tmp_path: Path) -> None:
        path = compiled(lambda x: Named(x, x), X).save(tmp_path / "m.mono")
        bundle = read_artifact(path)
        call: Any = bundle.manifest["call"]
        for keys in (["__class__", "b"], ["a"], ["a", "a"], ["a b", "c"], [1, 2]):
            changed = {**call, "results": {**call["results"], "keys": keys}}
            write_artifact(
                path, Bundle({**bundle.manifest, "call": changed}, bundle.blobs, bundle.arrays)
            )
            with pytest.raises(ArtifactError):
                monograph.load(path)
