"""``InferenceSession``: a model that is compiled when the session is made, and then run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np

from monograph.errors import InputError, MonographError
from monograph.frontends.onnx.model import load_model
from monograph.ir.types import Array
from monograph.onnxruntime.assignment import (
    RECORD,
    OrtEpAssignedSubgraph,
    assign_subgraphs,
)
from monograph.onnxruntime.binding import IOBinding
from monograph.onnxruntime.environment import get_available_providers
from monograph.onnxruntime.exceptions import Fail, InvalidArgument, run_error, unreadable
from monograph.onnxruntime.feeds import arrange, have_clashing_sizes
from monograph.onnxruntime.memory import OrtMemoryInfo, session_memory
from monograph.onnxruntime.model_facts import ModelMetadata, NodeArg, metadata
from monograph.onnxruntime.native import NativeSession
from monograph.onnxruntime.options import (
    LOAD_FROM_MODEL,
    OptionWarning,
    RunOptions,
    SessionOptions,
    options_from_model,
)
from monograph.onnxruntime.profile import Profile
from monograph.onnxruntime.programs import Programs
from monograph.onnxruntime.providers import KNOWN_PROVIDERS, check_and_normalize_provider_args
from monograph.onnxruntime.values import OrtValue, OrtValueVector, contents_of
from monograph.runtime.compiled import Executable
from monograph.runtime.sizes import SizesDoNotFit

Feed = Mapping[str, Any]


class InferenceSession:
    """A model to run: ``session.run(None, {"x": x})``. Calls are safe from several threads."""

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(path_or_bytes, str | bytes | bytearray | memoryview | os.PathLike):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        self._options = sess_options or SessionOptions()
        try:
            _provider_names(providers, provider_options)
        except ValueError as error:  # as there, the processor runs the model all the same
            warnings.warn(f"{error} The processor runs the model", OptionWarning, stacklevel=2)
        is_path = isinstance(path_or_bytes, str | os.PathLike)
        source = os.fspath(path_or_bytes) if is_path else bytes(path_or_bytes)  # type: ignore[arg-type]
        self._profile: Profile | None = None
        try:
            if os.environ.get(LOAD_FROM_MODEL) == "1":
                found = metadata(load_model(source).proto).custom_metadata_map
                self._options = options_from_model(found) or self._options
            _warn_of_ignored(self._options)
            if self._options.enable_profiling:
                self._profile = Profile(self._options.profile_file_prefix)
            with self._event("session_initialization"):
                self._programs = Programs(source, self._options)
        except MonographError as error:
            where = source if isinstance(source, str) else None
            raise unreadable(where, error) from error
        self._inputs = self._programs.inputs
        self._outputs = self._programs.outputs
        self._output_places = {each.name: place for place, each in enumerate(self._outputs)}

    # What it is -----------------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run needs."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """What a run can return."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a value of their own, which a run may give another."""
        return list(self._programs.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """Who made the model, and what for."""
        return metadata(self._programs.proto)

    def get_session_options(self) -> SessionOptions:
        """The options that it was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """The processor."""
        return get_available_providers()

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The processor has none."""
        return {name: {} for name in self.get_providers()}

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which provider runs each node, if the options asked for it to be recorded."""
        if self._options.entries.get(RECORD) != "1":
            raise Fail(f"Session configuration entry '{RECORD}' must be set to \"1\" to have it")
        (provider,) = self.get_providers()
        return assign_subgraphs(self._programs.proto, provider)

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Choose providers: there is one."""
        for name in _provider_names(providers, provider_options):
            if name not in KNOWN_PROVIDERS:
                raise RuntimeError(f"Unknown Provider Type: {name}")

    def enable_fallback(self) -> None:
        """Accepted: there is one provider, and nothing to fall back on."""

    def disable_fallback(self) -> None:
        """Accepted: there is one provider, and nothing to fall back on."""

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where inputs are read."""
        return [session_memory() for _ in self._inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where outputs are written."""
        return [session_memory() for _ in self._outputs]

    def get_input_epdevices(self) -> list[None]:
        """No input is on a device of a plug-in."""
        return [None for _ in self._inputs]

    @property
    def _sess(self) -> NativeSession:
        """The session of ONNX Runtime's compiled module, which programs reach for by this name."""
        return NativeSession(self)

    # Running --------------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Feed,
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """The outputs that are named, in that order; all of them for None or an empty list."""
        self._check_present(input_feed.keys())
        if run_options is not None and run_options.terminate:
            raise Fail("Exiting due to terminate flag being set to true.")
        places = self._places(output_names)
        given = {name: contents_of(item) for name, item in input_feed.items()}
        with self._event("model_run"):
            results = self._run(given)
        return [results[place] for place in places]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Feed,
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in another thread, which then calls ``callback(results, user_data, error)``."""
        self._check_present(input_feed.keys())
        self._places(output_names)
        _threads().submit(
            _call_back, self, output_names, dict(input_feed), callback, user_data, run_options
        )

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """The same of values, without a copy."""
        results = self.run(output_names, input_dict_ort_values, run_options)
        return [OrtValue(result) for result in results]

    def io_binding(self) -> IOBinding:
        """Somewhere to set inputs, and memory for outputs."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on inputs that were bound, and keep the outputs that were asked for."""
        try:
            self._check_present(iobinding.inputs.keys())
            names = list(iobinding.targets)
            found = self.run(names, iobinding.inputs, run_options) if names else []
        except (InvalidArgument, ValueError) as error:
            raise RuntimeError(f"Error in execution: {error}") from error
        iobinding.take(found)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[object] = (),
    ) -> None:
        """Run on values in order, and add the outputs to ``fetches``."""
        for value in self.run_with_ort_values(
            fetch_names, dict(zip(feed_names, feeds, strict=True)), run_options
        ):
            fetches.push_back(value)

    # Profiling ------------------------------------------------------------------------------------

    def end_profiling(self) -> str:
        """Write what was recorded; the path of the file, or nothing without profiling."""
        profile, self._profile = self._profile, None
        return "" if profile is None else profile.write()

    def get_profiling_start_time_ns(self) -> int:
        """When recording began, by a clock that only goes forward."""
        return 0 if self._profile is None else self._profile.start_ns

    def _event(self, name: str) -> Any:
        return nullcontext() if self._profile is None else self._profile.event(name)

    # How ------------------------------------------------------------------------------------------

    def _run(self, given: dict[str, Any]) -> list[Any]:
        program, inputs = self._programs.main, self._inputs
        if len(given) != len(inputs):
            inputs = self._programs.inputs_for(given)
            program = self._programs.for_inputs(inputs)
        items = [given[each.name] for each in inputs]
        try:
            found = self._run_program(program, inputs, items)
        except MonographError as error:
            raise run_error(error) from error
        return [_own(each, items) for each in found]

    def _run_program(
        self, program: Executable, inputs: Sequence[NodeArg], items: Sequence[Any]
    ) -> Sequence[Any]:
        """The outputs of a program; of another one where a call's sizes are not for this one."""
        try:
            found = program.run_arrays(items)
            if found is None:
                items = [arrange(*pair) for pair in zip(inputs, items, strict=True)]
                found = program.run(items)
            return found
        except InputError:
            if not have_clashing_sizes(inputs, items):
                raise
        except SizesDoNotFit:
            return self._programs.for_sizes(inputs, items).run(items)
        try:
            return self._programs.for_inputs(inputs, separate=True).run(items)
        except SizesDoNotFit:
            return self._programs.for_sizes(inputs, items).run(items)

    def _check_present(self, names: Any) -> None:
        missing = [each.name for each in self._inputs if each.name not in names]
        if missing:
            raise ValueError(
                f"Required inputs ({missing}) are missing from input feed ({list(names)})."
            )

    def _places(self, names: Sequence[str] | None) -> list[int]:
        """Which outputs are wanted."""
        if isinstance(names, str):
            raise TypeError(f"output_names is a list of names, not one: {names!r}")
        if not names:
            return list(range(len(self._outputs)))
        for name in names:
            if name not in self._output_places:
                raise InvalidArgument(f"Invalid output name:{name}")
        return [self._output_places[name] for name in names]


def _own(result: Any, items: Sequence[Any]) -> Any:
    """A result in memory of its own: what a model passes through must not be the caller's array."""
    if not isinstance(result, np.ndarray):
        return result
    arrays: list[Array] = [each for each in items if isinstance(each, np.ndarray)]
    if any(result is each or np.may_share_memory(result, each) for each in arrays):
        return result.copy()
    return result


def _provider_names(providers: Any, options: Any) -> list[str]:
    given = [providers] if isinstance(providers, str) else providers
    return check_and_normalize_provider_args(given, options, get_available_providers())[0]


def _warn_of_ignored(options: SessionOptions) -> None:
    if options.ignored:
        warnings.warn(
            f"options without an effect in monograph.onnxruntime: {', '.join(options.ignored)}",
            OptionWarning,
            stacklevel=3,
        )


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "monograph.onnxruntime")


def _call_back(
    session: InferenceSession,
    output_names: Sequence[str] | None,
    feed: dict[str, Any],
    callback: Callable[[list[Any], Any, str], None],
    user_data: Any,
    run_options: RunOptions | None,
) -> None:
    try:
        results, problem = session.run(output_names, feed, run_options), ""
    except Exception as error:  # the callback is told, whatever it is
        results, problem = [], str(error)
    callback(results, user_data, problem)
