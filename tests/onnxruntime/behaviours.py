"""What programs do with ONNX Runtime's Python API: each function is given the module to do it with.

What a function returns must be the same for ONNX Runtime and for ``monograph.onnxruntime``.
"""

from __future__ import annotations

import gc
import os
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

BEHAVIOURS: dict[str, Callable[[Any], Any]] = {}

X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3


def behaviour(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    BEHAVIOURS[function.__name__] = function
    return function


def model(
    shape: Any = ("batch", 4), dtype: int = TensorProto.FLOAT, default: bool = False
) -> bytes:
    """y = x + w, z = relu(y); with ``default``, w is an input with a value."""
    weight = numpy_helper.from_array(
        np.array([1, 2, 3, 4], helper.tensor_dtype_to_np_dtype(dtype)), "w"
    )
    inputs = [helper.make_tensor_value_info("x", dtype, shape)]
    if default:
        inputs.append(helper.make_tensor_value_info("w", dtype, [4]))
    outputs = [helper.make_tensor_value_info(name, dtype, shape) for name in ("y", "z")]
    nodes = [helper.make_node("Add", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "sum", inputs, outputs, [weight], doc_string="a graph")
    return _bytes(graph)


def identity(type_: Any) -> bytes:
    """y = x, of any type."""
    x, y = (helper.make_value_info(name, type_) for name in ("x", "y"))
    return _bytes(helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", [x], [y]))


def _bytes(graph: Any) -> bytes:
    made = helper.make_model(
        graph,
        producer_name="a tool",
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        doc_string="a model",
        domain="org.example",
        model_version=3,
    )
    helper.set_model_props(made, {"key": "value", "other": ""})
    return bytes(made.SerializeToString())


def problem(call: Callable[[], Any]) -> tuple[str, str]:
    """The class of what a call raises, and the first line of its text."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0]
    return "none", ""


def kind(call: Callable[[], Any]) -> str:
    """The class of what a call raises, where the words are each module's own."""
    return problem(call)[0]


def args(values: Any) -> list[Any]:
    return [(each.name, each.type, each.shape, str(each)) for each in values]


# What a session tells -----------------------------------------------------------------------------


@behaviour
def inputs_and_outputs_have_names_types_and_shapes(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return args(session.get_inputs()), args(session.get_outputs())


@behaviour
def sizes_are_numbers_names_or_none(ort: Any) -> Any:
    shapes = [(2, 4), (None, 4), ("n", 4), (4,)]
    return [args(ort.InferenceSession(model(shape)).get_inputs()) for shape in shapes]


@behaviour
def types_are_spelled_as_in_onnx(ort: Any) -> Any:
    names = (
        "FLOAT DOUBLE FLOAT16 BFLOAT16 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 BOOL "
        "STRING"
    )
    codes = [TensorProto.DataType.Value(name) for name in names.split()]
    types = [helper.make_tensor_type_proto(code, [2]) for code in codes]
    types.append(helper.make_sequence_type_proto(types[0]))
    types.append(helper.make_optional_type_proto(types[0]))
    return [args(ort.InferenceSession(identity(each)).get_inputs()) for each in types]


@behaviour
def outputs_without_a_shape_get_the_inferred_one(ort: Any) -> Any:
    node = helper.make_node("Transpose", ["x"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return args(
        ort.InferenceSession(_bytes(helper.make_graph([node], "g", [x], [y]))).get_outputs()
    )


@behaviour
def metadata_is_the_models(ort: Any) -> Any:
    meta = ort.InferenceSession(model()).get_modelmeta()
    names = "producer_name graph_name domain description graph_description version"
    return [getattr(meta, name) for name in names.split()], meta.custom_metadata_map


@behaviour
def initializers_that_are_inputs_are_overridable(ort: Any) -> Any:
    session = ort.InferenceSession(model(default=True))
    return args(session.get_inputs()), args(session.get_overridable_initializers())


@behaviour
def the_processor_is_the_provider(ort: Any) -> Any:
    session = ort.InferenceSession(model(), providers=["CPUExecutionProvider"])
    available = "CPUExecutionProvider" in ort.get_available_providers()
    return session.get_providers(), session.get_provider_options(), available, ort.get_device()


@behaviour
def providers_may_have_options(ort: Any) -> Any:
    session = ort.InferenceSession(model(), providers=[("CPUExecutionProvider", {})])
    other = ort.InferenceSession(model(), None, ["CPUExecutionProvider"], [{}])
    return session.get_providers(), other.get_providers()


@behaviour
def a_provider_that_is_not_there_is_a_warning(ort: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = ort.InferenceSession(
            model(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
        )
    texts = [str(each.message).split("names.")[0] for each in caught]
    return session.get_providers(), texts


@behaviour
def nodes_tell_their_provider_where_that_was_recorded(ort: Any) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    parts = ort.InferenceSession(model(), options).get_provider_graph_assignment_info()
    told = [(p.ep_name, [(n.domain, n.op_type) for n in p.get_nodes()]) for p in parts]
    without = ort.InferenceSession(model())
    return sorted(told), kind(without.get_provider_graph_assignment_info)


@behaviour
def a_model_may_hold_the_options_of_its_sessions(ort: Any) -> Any:
    proto = ModelProto.FromString(model())
    config = '{"session_options": {"intra_op_num_threads": 2, "graph_optimization_level": 1}}'
    helper.set_model_props(proto, {"ort_config": config})
    told = []
    for chosen in ("1", "0"):
        with mock.patch.dict(os.environ, {"ORT_LOAD_CONFIG_FROM_MODEL": chosen}):
            options = ort.InferenceSession(proto.SerializeToString()).get_session_options()
        told.append((options.intra_op_num_threads, str(options.graph_optimization_level)))
    return told


@behaviour
def an_unknown_provider_cannot_be_set(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raised = kind(lambda: session.set_providers(["NoSuchProvider"]))
    session.set_providers(["CPUExecutionProvider"])
    return raised in ("RuntimeError", "ValueError"), session.get_providers()


@behaviour
def providers_that_make_no_sense_are_refused_when_set(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    name = "CPUExecutionProvider"
    given = [
        ([3], None), ([name], 3), ([name], ["no"]), ([(name, 3)], None), ([[name, {}]], None),
        ([(name, {})], [{}]), ([name], [{}, {}]),
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [ort.InferenceSession(model(), None, *each).get_providers() for each in given]
    return [kind(lambda each=each: session.set_providers(*each)) for each in given], made  # type: ignore[misc]


@behaviour
def providers_are_normalized(ort: Any) -> Any:
    collection = import_module(f"{ort.__name__}.capi.onnxruntime_inference_collection")
    normalize = collection.check_and_normalize_provider_args
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [
            normalize(*each, ["a", "b"])
            for each in (
                (None, [{}]),
                ([("a", {1: 2}), "b"], None),
                (["a", "b", "a"], [{"x": 1}, {}, {"y": 2}]),
                (("c",), None),
            )
        ]
    return found, [str(each.message).split(" names.")[0] for each in caught]


@behaviour
def provider_options_without_providers_are_no_error(ort: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(lambda: ort.InferenceSession(model(), None, ["CPUExecutionProvider"], [{}, {}]))


# Loading ------------------------------------------------------------------------------------------


@behaviour
def models_load_from_paths_and_bytes(ort: Any) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder, "m.onnx")
        path.write_bytes(model())
        sessions = [ort.InferenceSession(each) for each in (path, str(path), model())]
    return [session.run(["z"], {"x": X})[0].tolist() for session in sessions]


@behaviour
def a_missing_file_is_no_such_file(ort: Any) -> Any:
    return problem(lambda: ort.InferenceSession("missing.onnx"))


@behaviour
def a_damaged_file_is_invalid_protobuf(ort: Any) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder, "m.onnx")
        path.write_bytes(b"this is not a model")
        return kind(lambda: ort.InferenceSession(str(path)))


@behaviour
def damaged_bytes_are_invalid_protobuf(ort: Any) -> Any:
    return kind(lambda: ort.InferenceSession(b"not a model"))


@behaviour
def empty_bytes_are_an_invalid_argument(ort: Any) -> Any:
    return problem(lambda: ort.InferenceSession(b""))


@behaviour
def other_objects_are_a_type_error(ort: Any) -> Any:
    return [problem(lambda each=each: ort.InferenceSession(each)) for each in (None, 3, [b"x"])]


@behaviour
def an_op_that_nobody_defines_is_an_invalid_graph(ort: Any) -> Any:
    return kind(lambda: ort.InferenceSession(model().replace(b"Relu", b"Rulu")))


@behaviour
def exceptions_have_one_home(ort: Any) -> Any:
    names = "Fail InvalidArgument NoSuchFile NoModel InvalidProtobuf NotImplemented InvalidGraph"
    home = ort.capi.onnxruntime_pybind11_state
    return [issubclass(getattr(home, name), Exception) for name in names.split()]


# Running ------------------------------------------------------------------------------------------


@behaviour
def all_outputs_for_none_and_for_an_empty_list(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return [[each.tolist() for each in session.run(names, {"x": X})] for names in (None, [])]


@behaviour
def outputs_in_the_order_asked_for(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return [each.tolist() for each in session.run(["z", "y", "z"], {"x": X})]


@behaviour
def any_size_of_a_symbolic_dimension(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    inputs = [np.ones((size, 4), np.float32) for size in (0, 1, 7)]
    return [session.run(["z"], {"x": each})[0].tolist() for each in inputs]


@behaviour
def sizes_of_one_name_may_differ(ort: Any) -> Any:
    names = ("x", "w", "y")
    x, w, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", "N"]) for n in names)
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    session = ort.InferenceSession(_bytes(helper.make_graph(nodes, "sum", [x, w], [y])))
    shapes = ([2, 2], [2, 2]), ([2, 3], [1, 3]), ([1, 1], [2, 2]), ([2, 3], [3, 2])
    feeds = [{"x": np.ones(a, "f4"), "w": np.ones(b, "f4")} for a, b in shapes]
    sums = [session.run(None, feed)[0].tolist() for feed in feeds[:3]]
    return sums, kind(lambda: session.run(None, feeds[3]))


@behaviour
def either_of_two_sizes_may_stretch(ort: Any) -> Any:
    x, w, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [size])
        for name, size in (("x", "N"), ("w", "M"), ("y", None))
    )
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    session = ort.InferenceSession(_bytes(helper.make_graph(nodes, "sum", [x, w], [y])))
    feeds = [{"x": np.ones(a, "f4"), "w": np.ones(b, "f4")} for a, b in ((3, 1), (1, 4), (5, 5))]
    return [session.run(None, feed)[0].tolist() for feed in feeds]


@behaviour
def corners_lie_at_whole_lengths(ort: Any) -> Any:
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 5, 4])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    scales = numpy_helper.from_array(np.array([1, 1, 1.7, 0.6], np.float32), "scales")
    found = []
    for mode in ("nearest", "linear", "cubic"):
        node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)
        node.attribute.append(
            helper.make_attribute("coordinate_transformation_mode", "align_corners")
        )
        graph = helper.make_graph([node], "image", [image], [made], [scales])
        session = ort.InferenceSession(_bytes(graph))
        x = np.arange(20, dtype=np.float32).reshape(1, 1, 5, 4)
        found.append(session.run(None, {"x": x})[0].round(2).tolist())
    return found


@behaviour
def results_are_arrays_of_their_own(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    first, second = (session.run(["z"], {"x": X})[0] for _ in range(2))
    first[...] = 9
    return type(first).__name__, str(first.dtype), second.tolist(), first.flags.writeable


@behaviour
def lists_of_numbers_take_the_declared_dtype(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return [session.run(["y"], {"x": each})[0].tolist() for each in ([[1, 2, 3, 4]], X.tolist())]


@behaviour
def strided_and_read_only_arrays(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    frozen = X.copy()
    frozen.flags.writeable = False
    given = (X[::-1], np.asfortranarray(X), X[:, ::-1], frozen)
    return [session.run(["y"], {"x": each})[0].tolist() for each in given]


@behaviour
def a_missing_input_is_a_value_error(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return [problem(lambda f=feed: session.run(None, f)) for feed in ({}, {"q": X})]


@behaviour
def an_input_too_many_is_an_invalid_argument(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return problem(lambda: session.run(None, {"x": X, "q": X}))


@behaviour
def an_unknown_output_is_an_invalid_argument(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return problem(lambda: session.run(["q"], {"x": X}))


@behaviour
def names_must_be_a_list(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return kind(lambda: session.run("z", {"x": X}))


@behaviour
def a_feed_must_be_a_dict(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return kind(lambda: session.run(None, [X]))


@behaviour
def another_dtype_is_an_invalid_argument(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    dtypes = (np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_)
    return [problem(lambda d=dtype: session.run(None, {"x": X.astype(d)})) for dtype in dtypes]


@behaviour
def text_for_numbers_is_an_invalid_argument(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return problem(lambda: session.run(None, {"x": np.array([["a"] * 4], object)}))


@behaviour
def another_rank_is_an_invalid_argument(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return [problem(lambda x=x: session.run(None, {"x": x})) for x in (X[0], X[None])]


@behaviour
def other_sizes_are_an_invalid_argument(ort: Any) -> Any:
    session = ort.InferenceSession(model((2, 4)))

    def lines(shape: tuple[int, ...]) -> list[str]:
        try:
            session.run(None, {"x": np.ones(shape, np.float32)})
        except Exception as error:
            return [type(error).__name__, *str(error).splitlines()]
        return []

    return lines((3, 4)), lines((2, 5)), lines((0, 7))


@behaviour
def a_bare_number_is_a_runtime_error(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return kind(lambda: session.run(None, {"x": 1.0})), kind(lambda: session.run(None, {"x": "a"}))


@behaviour
def nothing_for_a_tensor_is_a_failure(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    return kind(lambda: session.run(None, {"x": None}))


@behaviour
def text_that_is_no_number_is_a_runtime_exception(ort: Any) -> Any:
    text = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    number = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    session = ort.InferenceSession(_bytes(helper.make_graph([node], "read", [text], [number])))
    feed = {"x": np.array(["1.5", "two"], object)}
    return kind(lambda: session.run(None, feed))


@behaviour
def a_default_is_used_or_overridden(ort: Any) -> Any:
    session = ort.InferenceSession(model(default=True))
    other = np.zeros(4, np.float32)
    feeds: list[dict[str, Any]] = [{"x": X}, {"x": X, "w": other}, {"w": other, "x": X}, {"x": X}]
    return [session.run(["y"], feed)[0].tolist() for feed in feeds]


@behaviour
def an_override_is_checked_as_well(ort: Any) -> Any:
    session = ort.InferenceSession(model(default=True))
    wrong = np.zeros(5, np.float32)
    return kind(lambda: session.run(None, {"x": X, "w": wrong}))


@behaviour
def text_in_every_form(ort: Any) -> Any:
    session = ort.InferenceSession(identity(helper.make_tensor_type_proto(TensorProto.STRING, [2])))
    forms: list[Any] = [
        np.array(["a", "bc"]),
        np.array(["a", "bc"], object),
        ["x", "yz"],
    ]
    found = [session.run(None, {"x": each})[0] for each in forms]
    return [(each.dtype.kind, each.tolist()) for each in found]


@behaviour
def sequences_are_lists(ort: Any) -> Any:
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    session = ort.InferenceSession(identity(helper.make_sequence_type_proto(element)))
    (found,) = session.run(None, {"x": [X, X[0]]})
    return type(found).__name__, [each.tolist() for each in found]


@behaviour
def integers_and_truth_values(ort: Any) -> Any:
    codes = (TensorProto.INT32, TensorProto.DOUBLE, TensorProto.FLOAT16)
    found = []
    for code in codes:
        session = ort.InferenceSession(model(dtype=code))
        given = np.ones((2, 4), helper.tensor_dtype_to_np_dtype(code))
        (result,) = session.run(["y"], {"x": given})
        found.append((str(result.dtype), result.tolist()))
    return found


@behaviour
def an_input_that_is_passed_through_keeps_its_contents(ort: Any) -> Any:
    type_ = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 4])
    session = ort.InferenceSession(identity(type_))
    given = X.copy()
    return session.run(None, {"x": given})[0].tolist(), given.tolist()


@behaviour
def many_threads_at_once(ort: Any) -> Any:
    session = ort.InferenceSession(model())

    def call(number: int) -> float:
        given = np.full((number + 1, 4), number, np.float32)
        return float(session.run(["z"], {"x": given})[0].sum())

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(call, range(64)))


@behaviour
def run_async_calls_back(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    done, told = threading.Event(), []

    def callback(results: Any, data: Any, error: str) -> None:
        told.append(([each.tolist() for each in results], data, error))
        done.set()

    session.run_async(["z"], {"x": X}, callback, {"number": 7}, None)
    assert done.wait(20)
    return told


@behaviour
def a_session_outlives_its_name(ort: Any) -> Any:
    results = ort.InferenceSession(model()).run(["z"], {"x": X})
    gc.collect()
    return results[0].tolist()


# Options ------------------------------------------------------------------------------------------


@behaviour
def options_have_defaults(ort: Any) -> Any:
    session, run = ort.SessionOptions(), ort.RunOptions()
    names = (
        "enable_cpu_mem_arena enable_mem_pattern enable_mem_reuse enable_profiling execution_mode "
        "graph_optimization_level inter_op_num_threads intra_op_num_threads log_verbosity_level "
        "logid optimized_model_filepath profile_file_prefix use_deterministic_compute"
    )
    run_names = (
        "log_severity_level log_verbosity_level logid only_execute_path_to_fetches terminate"
    )
    return [str(getattr(session, name)) for name in names.split()], [
        str(getattr(run, name)) for name in run_names.split()
    ]


@behaviour
def options_are_checked(ort: Any) -> Any:
    options = ort.SessionOptions()
    return (
        kind(lambda: setattr(options, "intra_op_num_threads", "two")),
        kind(lambda: setattr(options, "graph_optimization_level", 1)),
        kind(lambda: setattr(options, "no_such_option", 1)),
    )


@behaviour
def enumerations_have_members(ort: Any) -> Any:
    kinds = (ort.GraphOptimizationLevel, ort.ExecutionMode, ort.ExecutionOrder)
    return [[(name, int(each)) for name, each in k.__members__.items()] for k in kinds]


@behaviour
def every_level_gives_the_result(ort: Any) -> Any:
    found = []
    for level in ort.GraphOptimizationLevel.__members__.values():
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(model(), options)
        found.append(
            (
                str(session.get_session_options().graph_optimization_level),
                session.run(["z"], {"x": X})[0].tolist(),
            )
        )
    return found


@behaviour
def threads_and_logs_may_be_set(ort: Any) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.logid = "mine"
    session = ort.InferenceSession(model(), sess_options=options)
    return session.run(["z"], {"x": X})[0].tolist(), session.get_session_options().logid


@behaviour
def entries_of_the_configuration(ort: Any) -> Any:
    options = ort.SessionOptions()
    options.add_session_config_entry("a.key", "1")
    return options.get_session_config_entry("a.key"), problem(
        lambda: options.get_session_config_entry("another")
    )


@behaviour
def free_dimensions_are_fixed_by_name(ort: Any) -> Any:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    session = ort.InferenceSession(model(), options)
    wrong = np.ones((3, 4), np.float32)
    return (
        args(session.get_inputs()),
        session.run(["z"], {"x": X})[0].tolist(),
        problem(lambda: session.run(None, {"x": wrong})),
    )


@behaviour
def initializers_are_replaced(ort: Any) -> Any:
    options = ort.SessionOptions()
    value = ort.OrtValue.ortvalue_from_numpy(np.full(4, 5, np.float32))
    options.add_initializer("w", value)
    session = ort.InferenceSession(model(), options)
    return session.run(["y"], {"x": X})[0].tolist()


@behaviour
def the_optimized_model_is_written(ort: Any) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder, "optimized.onnx")
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(path)
        ort.InferenceSession(model(), options)
        again = ort.InferenceSession(str(path))
        return args(again.get_inputs()), again.run(["z"], {"x": X})[0].tolist()


@behaviour
def terminate_ends_a_run(ort: Any) -> Any:
    options = ort.RunOptions()
    options.terminate = True
    session = ort.InferenceSession(model())
    raised = problem(lambda: session.run(None, {"x": X}, options))
    options.terminate = False
    return raised, session.run(["z"], {"x": X}, run_options=options)[0].tolist()


@behaviour
def profiling_writes_a_trace(ort: Any) -> Any:
    with TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "trace"))
        session = ort.InferenceSession(model(), options)
        session.run(None, {"x": X})
        text = Path(session.end_profiling()).read_text()
    return text.strip()[0], text.strip()[-1], '"model_run"' in text


# OrtValue -----------------------------------------------------------------------------------------


@behaviour
def a_value_tells_what_it_is(ort: Any) -> Any:
    value = ort.OrtValue.ortvalue_from_numpy(X)
    return (
        value.shape(), value.data_type(), value.device_name(), value.is_tensor(),
        value.has_value(), value.is_sparse_tensor(), value.is_tensor_sequence(),
        value.element_type(), value.tensor_size_in_bytes(), value.numpy().tolist(),
    )  # fmt: skip


@behaviour
def a_value_of_every_dtype(ort: Any) -> Any:
    dtypes = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
    make = ort.OrtValue.ortvalue_from_numpy
    return [make(np.ones(2, dtype)).data_type() for dtype in dtypes]


@behaviour
def a_value_shares_the_arrays_memory(ort: Any) -> Any:
    array = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(array)
    array[0, 0] = 42
    return value.numpy()[0, 0], value.data_ptr() == array.ctypes.data


@behaviour
def a_value_can_be_fed_and_fetched(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    value = ort.OrtValue.ortvalue_from_numpy(X)
    found = session.run_with_ort_values(["z"], {"x": value})
    return session.run(["z"], {"x": value})[0].tolist(), [each.numpy().tolist() for each in found]


@behaviour
def a_value_is_made_of_a_shape_and_a_type(ort: Any) -> Any:
    make = ort.OrtValue.ortvalue_from_shape_and_type
    found = [make([2, 3], np.float32), make([0], np.int64), make([4], TensorProto.BFLOAT16)]
    return [(each.shape(), each.data_type()) for each in found]


@behaviour
def a_value_is_updated_in_place(ort: Any) -> Any:
    array = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(array)
    value.update_inplace(np.zeros_like(X))
    wrong = kind(lambda: value.update_inplace(np.zeros(3, np.float32)))
    return value.numpy().tolist(), wrong in ("RuntimeError", "ValueError")


@behaviour
def a_value_is_an_array_and_a_dlpack(ort: Any) -> Any:
    value = ort.OrtValue.ortvalue_from_numpy(X)
    again = ort.OrtValue.from_dlpack(value)
    return (
        np.asarray(value).tolist(),
        np.from_dlpack(value).tolist(),
        tuple(value.__dlpack_device__()),
        again.data_ptr() == value.data_ptr(),
    )


@behaviour
def no_value_is_on_a_gpu(ort: Any) -> Any:
    return kind(lambda: ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0))


@behaviour
def a_capsule_tells_whether_it_holds_bytes(ort: Any) -> Any:
    state = import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")
    make = ort.OrtValue.ortvalue_from_numpy
    capsules = [make(np.ones(2, dtype))._ortvalue.to_dlpack() for dtype in ("u1", "f4", "i1")]
    return [state.is_dlpack_uint8_tensor(each) for each in capsules]


# Memory -------------------------------------------------------------------------------------------


def _told(info: Any) -> tuple[Any, ...]:
    return (
        info.name, info.device_id, str(info.mem_type), str(info.allocator_type),
        str(info.device_mem_type), info.device_vendor_id,
    )  # fmt: skip


@behaviour
def devices_have_numbers_and_makers(ort: Any) -> Any:
    devices = [ort.OrtDevice.make(name, 1) for name in ("cpu", "cuda", "dml", "npu", "cann")]
    numbers = [(each.device_type(), each.device_id(), each.device_mem_type()) for each in devices]
    makers = {name: int(number) for name, number in ort.OrtDeviceVendorId.__members__.items()}
    unknown = kind(lambda: ort.OrtDevice.make("abacus", 0)) != "none"
    return numbers, [each.device_vendor_id() for each in devices], makers, unknown


@behaviour
def memory_is_described(ort: Any) -> Any:
    arena, default = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
    own = ort.OrtMemoryInfo("Cpu", arena, 0, default)
    other = ort.OrtMemoryInfo.create_v2(
        "Test",
        ort.OrtMemoryInfoDeviceType.CPU,
        0,
        0,
        ort.OrtDeviceMemoryType.DEFAULT,
        128,
        arena,
    )
    wrong = problem(lambda: ort.OrtMemoryInfo("Elsewhere", arena, 0, default))
    session = ort.InferenceSession(model())
    infos = [*session.get_input_memory_infos(), *session.get_output_memory_infos()]
    return _told(own), _told(other), wrong, [_told(each) for each in infos]


@behaviour
def kinds_of_memory_have_members(ort: Any) -> Any:
    kinds = (
        ort.OrtAllocatorType, ort.OrtMemType, ort.OrtDeviceMemoryType, ort.OrtMemoryInfoDeviceType,
    )  # fmt: skip
    return [
        {name: int(member) for name, member in each.__members__.items()} for each in kinds
    ], str(ort.OrtMemType.CPU_INPUT)


@behaviour
def arenas_are_configured_and_registered(ort: Any) -> Any:
    names = (
        "max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk",
        "initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes",
    )  # fmt: skip
    made = [ort.OrtArenaCfg(8, 0, 4, 2), ort.OrtArenaCfg({"max_mem": 3, names[-1]: 17})]
    wrong = [
        kind(lambda: ort.OrtArenaCfg({"depth": 1})),
        kind(lambda: ort.OrtArenaCfg(8, 0, 4)),
        kind(lambda: ort.OrtArenaCfg("8", 0, 4, 2)),
    ]
    arena = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    info = ort.OrtMemoryInfo("Cpu", arena, 0, ort.OrtMemType.DEFAULT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ort.create_and_register_allocator(info, None)
        ort.create_and_register_allocator_v2("CPUExecutionProvider", info, {}, made[0])
        register = ort.create_and_register_allocator_v2
        elsewhere = kind(lambda: register("CUDAExecutionProvider", info, {}, None))
    return [[getattr(each, name) for name in names] for each in made], wrong, elsewhere


# IOBinding ----------------------------------------------------------------------------------------


@behaviour
def bound_inputs_and_outputs(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z")
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    (value,) = binding.get_outputs()
    return value.numpy().tolist(), [each.tolist() for each in binding.copy_outputs_to_cpu()]


@behaviour
def bound_memory_is_read_and_written(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    binding, source, target = session.io_binding(), X.copy(), np.zeros_like(X)
    binding.bind_input("x", "cpu", 0, np.float32, list(X.shape), source.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, list(X.shape), target.ctypes.data)
    session.run_with_iobinding(binding)
    before = target.tolist()
    source[...] = 0
    session.run_with_iobinding(binding)
    return before, target.tolist()


@behaviour
def bound_values_are_read_and_written(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    binding, target = session.io_binding(), np.zeros_like(X)
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_numpy(target))
    session.run_with_iobinding(binding, ort.RunOptions())
    return target.tolist()


@behaviour
def outputs_come_in_the_order_bound(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z")
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return [each.tolist() for each in binding.copy_outputs_to_cpu()]


@behaviour
def a_binding_refuses_names_and_types(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    binding = session.io_binding()
    unknown = problem(lambda: binding.bind_cpu_input("q", X))
    binding.bind_cpu_input("x", X.astype(np.int64))
    binding.bind_output("z")
    return unknown, kind(lambda: session.run_with_iobinding(binding))


@behaviour
def an_incomplete_binding_does_not_run(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    binding = session.io_binding()
    binding.bind_output("z")
    missing = kind(lambda: session.run_with_iobinding(binding))
    binding.bind_cpu_input("x", X)
    binding.bind_output("q")
    unknown = kind(lambda: session.run_with_iobinding(binding))
    binding.clear_binding_outputs()
    binding.clear_binding_inputs()
    return missing, unknown


@behaviour
def a_cleared_binding_is_empty(ort: Any) -> Any:
    session = ort.InferenceSession(model())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z")
    binding.clear_binding_outputs()
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return [each.tolist() for each in binding.copy_outputs_to_cpu()]


@behaviour
def the_compiled_modules_session_and_binding(ort: Any) -> Any:
    state = import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")
    session = ort.InferenceSession(model())
    value = ort.OrtValue.ortvalue_from_numpy(X)
    vector = session._sess.run_with_ort_values({"x": value._get_c_value()}, ["z"], None)
    binding, target = state.SessionIOBinding(session._sess), np.zeros_like(X)
    device = state.OrtDevice(state.OrtDevice.cpu(), state.OrtDevice.default_memory(), 0)
    binding.bind_input("x", device, TensorProto.FLOAT, X.shape, X.ctypes.data)
    binding.bind_output("z", device, TensorProto.FLOAT, X.shape, target.ctypes.data)
    binding.bind_output("y", device)
    session._sess.run_with_iobinding(binding, None)
    binding.bind_input("x", X + 1)
    outputs = [each.tolist() for each in binding.copy_outputs_to_cpu()]
    return type(vector).__name__, vector[0].numpy().tolist(), target.tolist(), outputs


def node_of(op: str, *operands: Any, **attributes: Any) -> tuple[bytes, dict[str, Any]]:
    """A model of one node whose operands have free sizes, and what to run it on."""
    feed = {f"x{k}": np.asarray(each) for k, each in enumerate(operands)}
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), [f"{name}_{k}" for k in range(x.ndim)]
        )
        for name, x in feed.items()
    ]
    output = helper.make_tensor_value_info("y", attributes.get("to", TensorProto.FLOAT), None)
    node = helper.make_node(op, list(feed), ["y"], **attributes)
    return _bytes(helper.make_graph([node], "one", inputs, [output])), feed


@behaviour
def what_a_node_refuses(ort: Any) -> Any:
    far, row, column = np.array([0, 55]), X[0], np.array([[0], [55]])
    refused = {
        "Gather": node_of("Gather", row, far),
        "GatherElements": node_of("GatherElements", row, far),
        "ScatterND": node_of("ScatterND", row, column, row[:2]),
        "Add": node_of("Add", row, row[:3]),
        "Gemm": node_of("Gemm", X, X),
        "Expand": node_of("Expand", row, np.array([7])),
        "OneHot": node_of("OneHot", far, np.array([-1]), row[:2]),
        "Tile": node_of("Tile", row, np.array([2, 2])),
    }
    return {
        name: kind(lambda made=made, feed=feed: ort.InferenceSession(made).run(None, feed))  # type: ignore[misc]
        for name, (made, feed) in refused.items()
    }


@behaviour
def numbers_as_text(ort: Any) -> Any:
    floats = [1, 1.5, -0.0, 0.1, 1 / 3, 1e-5, 123456.0, 1e10, np.nan, np.inf, -np.inf]
    texts = []
    for x in (np.float32(floats), np.float64(floats), np.array([-7, 300]), np.array([True, False])):
        made, feed = node_of("Cast", x, to=TensorProto.STRING)
        texts.append(ort.InferenceSession(made).run(None, feed)[0].tolist())
    return texts


@behaviour
def weights_of_a_model_in_bytes_lie_in_a_folder_that_an_option_names(ort: Any) -> Any:
    made = ModelProto.FromString(model())
    made.ClearField("model_version")
    options = ort.SessionOptions()
    with TemporaryDirectory() as folder:
        (weight,) = made.graph.initializer
        Path(folder, "weights.bin").write_bytes(weight.raw_data)
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="weights.bin")
        absent = kind(lambda: ort.InferenceSession(made.SerializeToString()))
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
        session = ort.InferenceSession(made.SerializeToString(), options)
        return session.run(["z"], {"x": X})[0].tolist(), absent, session.get_modelmeta().version
