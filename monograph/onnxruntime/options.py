"""``SessionOptions`` and ``RunOptions``: what a program asks for, and what of it counts here.

Options either do what they do in ONNX Runtime, or have no effect on results (memory, logging,
scheduling). The second kind is accepted, and ``SessionOptions.ignored`` names those that were set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from monograph.onnxruntime import exceptions
from monograph.onnxruntime.assignment import RECORD

if TYPE_CHECKING:
    from monograph.onnxruntime.values import OrtValue

WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
EXTERNAL_FILE = "session.optimized_model_external_initializers_file_name"
EXTERNAL_SIZE = "session.optimized_model_external_initializers_min_size_in_bytes"


class OptionWarning(UserWarning):
    """An option that was accepted and has no effect here."""


_global_threads: list[int] = []


def set_global_thread_pool_sizes(
    intra_op_num_threads: int = 0, inter_op_num_threads: int = 0
) -> None:
    """Give the sessions of ``use_per_session_threads = False`` this many threads a call, once."""
    if _global_threads:
        raise exceptions.Fail("Global thread pools have already been created, cannot replace them")
    _global_threads.append(int(intra_op_num_threads))


def global_threads() -> int | None:
    """The number that was set; 0 for as many as there are."""
    return _global_threads[0] if _global_threads else None


class PrintedMember(IntEnum):
    """Printed with its class, as ONNX Runtime's are."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class GraphOptimizationLevel(PrintedMember):
    """How much to optimise: levels O0, O1 and O2 of this compiler."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


LEVELS = {
    GraphOptimizationLevel.ORT_DISABLE_ALL: "O0",
    GraphOptimizationLevel.ORT_ENABLE_BASIC: "O1",
}


class ExecutionMode(PrintedMember):
    """Whether nodes run beside each other; here, the threads of a call share each kernel."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(PrintedMember):
    """In what order nodes run."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Options:
    """Attributes with defaults, each of one kind, and entries of a configuration by name."""

    _defaults: ClassVar[dict[str, Any]]
    _what: ClassVar[str]

    def __init__(self) -> None:
        self.__dict__["entries"] = {}
        self.__dict__.update(self._defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        kind = type(self._defaults[name])
        if kind is str and isinstance(value, os.PathLike):
            value = os.fspath(value)
        is_number = kind is int and isinstance(value, int) and not isinstance(value, IntEnum)
        if not (is_number or type(value) is kind):
            raise TypeError(
                f"{self._what}.{name} takes {kind.__name__}, not {type(value).__name__}: {value!r}"
            )
        self.__dict__[name] = value

    def _entry(self, name: str) -> str:
        if name not in self.entries:
            raise RuntimeError(f"{self._what} does not have configuration with key: {name}")
        return str(self.entries[name])

    entries: dict[str, str]


class SessionOptions(_Options):
    """How a session is made."""

    _what = "SessionOptions"
    _defaults: ClassVar = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "inter_op_num_threads": 0,
        "intra_op_num_threads": 0,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }
    _without_effect = (
        "enable_cpu_mem_arena",
        "enable_mem_pattern",
        "enable_mem_reuse",
        "execution_mode",
        "execution_order",
        "inter_op_num_threads",
        "use_per_session_threads",
    )
    use_per_session_threads: bool
    enable_profiling: bool
    graph_optimization_level: GraphOptimizationLevel
    intra_op_num_threads: int
    optimized_model_filepath: str
    profile_file_prefix: str
    sizes_by_name: dict[str, int]
    sizes_by_denotation: dict[str, int]
    initializers: dict[str, Any]
    files: dict[str, bytes]

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(sizes_by_name={}, sizes_by_denotation={}, initializers={}, files={})

    @property
    def ignored(self) -> list[str]:
        """What was set and has no effect here."""
        changed = [
            name for name in self._without_effect if getattr(self, name) != self._defaults[name]
        ]
        if global_threads() is not None and "use_per_session_threads" in changed:
            changed.remove("use_per_session_threads")
        known = (EXTERNAL_FILE, EXTERNAL_SIZE, RECORD, WEIGHTS_FOLDER)
        return changed + [name for name in self.entries if name not in known]

    @property
    def threads(self) -> int | None:
        """How many a call may use; None for as many as there are."""
        shared = global_threads()
        if shared is None:
            return self.intra_op_num_threads or None
        if self.use_per_session_threads:
            raise RuntimeError(
                "use_per_session_threads must be false when using a global thread pool"
            )
        return shared or None

    def add_session_config_entry(self, key: str, value: str, /) -> None:
        """Set an entry of the configuration."""
        self.entries[key] = value

    def get_session_config_entry(self, key: str, /) -> str:
        """An entry that was set."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int, /) -> None:
        """Give a symbolic dimension one size, by its name (``dim_param``)."""
        self.sizes_by_name[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int, /) -> None:
        """Give every dimension of this denotation one size."""
        self.sizes_by_denotation[denotation] = int(size)

    def add_initializer(self, name: str, value: OrtValue, /) -> None:
        """Use these contents for an initializer, instead of the model's."""
        self.initializers[name] = value.numpy()

    def add_external_initializers(
        self, names: Sequence[str], values: Sequence[OrtValue], /
    ) -> None:
        """The same for several, whose data the model keeps in other files."""
        if len(names) != len(values):
            raise RuntimeError("Expecting names and ortvalues lists to have equal length")
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], contents: Sequence[bytes], lengths: Sequence[int], /
    ) -> None:
        """Use these bytes for the files beside the model that its initializers are in."""
        if not len(names) == len(contents) == len(lengths):
            raise RuntimeError("Expecting lists of equal length")
        for name, content, length in zip(names, contents, lengths, strict=True):
            self.files[name] = bytes(content[:length])

    def has_providers(self) -> bool:
        """Whether providers were added to the options."""
        return False

    def add_provider(self, name: str, options: dict[str, str], /) -> None:
        """Add a provider; the processor is always there."""
        if name != "CPUExecutionProvider":
            _cannot(f"the provider {name}")

    def register_custom_ops_library(self, path: str, /) -> NoReturn:
        """Refused: native code of others is not loaded."""
        _cannot(f"the library of custom ops {path}")


LOAD_FROM_MODEL = "ORT_LOAD_CONFIG_FROM_MODEL"
"""The variable of the environment that lets a model say how its sessions are made."""
OF_MODELS: Mapping[str, type] = {
    "enable_profiling": bool,
    "execution_mode": ExecutionMode,
    "graph_optimization_level": GraphOptimizationLevel,
    "inter_op_num_threads": int,
    "intra_op_num_threads": int,
}
"""The options that a model may give, as numbers, and their kinds."""


def options_from_model(metadata: Mapping[str, str]) -> SessionOptions | None:
    """The options in a model's metadata, which count instead of the program's; None without any."""
    if "ort_config" not in metadata:
        return None
    try:
        given = json.loads(metadata["ort_config"]).get("session_options", {})
        values = {name: OF_MODELS[name](number) for name, number in given.items()}
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise exceptions.Fail(f"Could not parse the ort_config of the model: {error!r}") from error
    options = SessionOptions()
    for name, value in values.items():
        setattr(options, name, value)
    return options


class RunOptions(_Options):
    """How one call runs."""

    _what = "RunOptions"
    _defaults: ClassVar = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
    }
    terminate: bool

    def add_run_config_entry(self, key: str, value: str, /) -> None:
        """Set an entry of the configuration."""
        self.entries[key] = value

    def get_run_config_entry(self, key: str, /) -> str:
        """An entry that was set."""
        return self._entry(key)

    def add_active_adapter(self, adapter: object, /) -> NoReturn:
        """Refused."""
        _cannot("adapters of LoRA")


def _cannot(what: str) -> NoReturn:
    raise exceptions.NotImplemented(
        f"monograph.onnxruntime runs models on the processor, without {what}"
    )
