#include "guards/state.h"

#include <cstdint>
#include <string>
#include <vector>

#include "guards/constant.h"
#include "ref.h"

#if DYNCOMP_TORCH
#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

// The header that declares these pulls in all of ATen.
namespace at::autocast {
TORCH_API bool is_autocast_enabled(at::DeviceType device_type);
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
TORCH_API bool is_autocast_cache_enabled();
}  // namespace at::autocast
#endif

namespace dyncomp {

#if !DYNCOMP_TORCH

struct State {};
void DeleteState::operator()(State* state) const { delete state; }
PyObject* state_now() { return PyTuple_New(0); }
StatePointer state_parse(PyObject*) { return StatePointer(new State); }
bool state_holds(State&, bool) { return true; }
PyObject* state_explain(State&, bool) { return PyUnicode_FromString(""); }

#else

namespace {

// Everything but the dispatch keys that is a number.
struct Flags {
  int64_t grad_mode, inference_mode;
  int64_t torch_function;  // at::impl::TorchFunctionDisabledState
  int64_t function_modes, dispatch_modes;
  int64_t default_dtype;
  int64_t deterministic, deterministic_warn_only, deterministic_fill;
  int64_t matmul_precision_cuda, matmul_precision_mkldnn;  // at::Float32Precision
};

struct Field {
  const char* name;
  int64_t Flags::* value;
};

constexpr Field kFlagFields[] = {
    {"grad_mode", &Flags::grad_mode},
    {"inference_mode", &Flags::inference_mode},
    {"torch_function", &Flags::torch_function},
    {"function_modes", &Flags::function_modes},
    {"dispatch_modes", &Flags::dispatch_modes},
    {"default_dtype", &Flags::default_dtype},
    {"deterministic", &Flags::deterministic},
    {"deterministic_warn_only", &Flags::deterministic_warn_only},
    {"deterministic_fill", &Flags::deterministic_fill},
    {"matmul_precision_cuda", &Flags::matmul_precision_cuda},
    {"matmul_precision_mkldnn", &Flags::matmul_precision_mkldnn},
};

constexpr at::DeviceType kAutocastDevices[] = {
    at::kCPU, at::kCUDA, at::kXPU, at::kHPU, at::kMPS, at::kMTIA, at::kXLA, at::kPrivateUse1,
};

int64_t matmul_precision(at::Float32Backend backend) {
  return static_cast<int64_t>(at::globalContext().float32Precision(backend, at::Float32Op::MATMUL));
}

Flags read_flags() {
  Flags flags{};
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  flags.grad_mode = autograd.get_grad_mode();
  flags.inference_mode = autograd.get_inference_mode();
  flags.torch_function = at::impl::PythonTorchFunctionTLS::get_disabled_state();
  flags.function_modes = at::impl::PythonTorchFunctionTLS::stack_len();
  flags.dispatch_modes = c10::impl::TorchDispatchModeTLS::stack_len();
  flags.default_dtype = static_cast<int64_t>(c10::get_default_dtype_as_scalartype());
  const at::Context& context = at::globalContext();
  flags.deterministic = context.deterministicAlgorithms();
  flags.deterministic_warn_only = context.deterministicAlgorithmsWarnOnly();
  flags.deterministic_fill = context.deterministicFillUninitializedMemory();
  flags.matmul_precision_cuda = matmul_precision(at::Float32Backend::CUDA);
  flags.matmul_precision_mkldnn = matmul_precision(at::Float32Backend::MKLDNN);
  return flags;
}

// ---- the same at every call, in a few nanoseconds -----------------------------------------------------------------

// The accessors of these private members cost as much as all other reads together.
template <typename Tag, auto member>
struct Expose {
  friend constexpr auto exposed(Tag) { return member; }
};
struct ModeStack {
  friend constexpr auto exposed(ModeStack);
};
struct DisabledState {
  friend constexpr auto exposed(DisabledState);
};
template struct Expose<ModeStack, &at::impl::PythonTorchFunctionTLS::stack_>;
template struct Expose<DisabledState, &at::impl::PythonTorchFunctionTLS::disabled_state_>;

// Torch's thread-local objects stay where they are for the life of the thread.
struct ThreadLocals {
  const c10::AutogradState* autograd = nullptr;
  const at::impl::PythonTorchFunctionTLS* functions = nullptr;
};
[[gnu::tls_model("initial-exec")]] thread_local ThreadLocals thread_locals;

[[gnu::noinline]] void find_thread_locals() {
  thread_locals.autograd = &c10::AutogradState::get_tls_state();
  thread_locals.functions = &at::impl::PythonTorchFunctionTLS::get_state();
}

bool thread_flags_hold(const Flags& expected) {
  if (thread_locals.autograd == nullptr) [[unlikely]]
    find_thread_locals();
  const c10::AutogradState& autograd = *thread_locals.autograd;
  const at::impl::PythonTorchFunctionTLS& functions = *thread_locals.functions;
  return autograd.get_grad_mode() == (expected.grad_mode != 0) &&
         autograd.get_inference_mode() == (expected.inference_mode != 0) &&
         functions.*exposed(DisabledState()) == expected.torch_function &&
         static_cast<int64_t>((functions.*exposed(ModeStack())).size()) == expected.function_modes;
}

bool process_flags_hold(const Flags& expected) {
  if (static_cast<int64_t>(c10::get_default_dtype_as_scalartype()) != expected.default_dtype) return false;
  const at::Context& context = at::globalContext();
  if (context.deterministicAlgorithms() != (expected.deterministic != 0)) return false;
  if (expected.deterministic == 0) return true;  // the other two change nothing then
  return context.deterministicAlgorithmsWarnOnly() == (expected.deterministic_warn_only != 0) &&
         context.deterministicFillUninitializedMemory() == (expected.deterministic_fill != 0);
}

// Slow to read; matrix kernels on the CPU look at it themselves at every call, recorded device graphs do not.
bool precision_holds(const Flags& expected) {
  return matmul_precision(at::Float32Backend::CUDA) == expected.matmul_precision_cuda &&
         matmul_precision(at::Float32Backend::MKLDNN) == expected.matmul_precision_mkldnn;
}

// ---- descriptions -------------------------------------------------------------------------------------------------

// ((device, dtype), ..., cache on) for the devices where autocast is on; () when it is off everywhere.
PyObject* describe_autocast() {
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return nullptr;
  for (at::DeviceType device : kAutocastDevices) {
    if (!at::autocast::is_autocast_enabled(device)) continue;
    Ref pair = Ref::steal(Py_BuildValue("(ss)", c10::DeviceTypeName(device, /*lower_case=*/true).c_str(),
                                        c10::toString(at::autocast::get_autocast_dtype(device))));
    if (!pair || PyList_Append(list.get(), pair.get()) < 0) return nullptr;
  }
  if (PyList_GET_SIZE(list.get()) > 0) {
    Ref cache = Ref::steal(Py_BuildValue("(si)", "cache", at::autocast::is_autocast_cache_enabled()));
    if (!cache || PyList_Append(list.get(), cache.get()) < 0) return nullptr;
  }
  return PyList_AsTuple(list.get());
}

PyObject* function_mode(int64_t index) {  // borrowed
  const auto& mode = at::impl::PythonTorchFunctionTLS::get_stack_at(index);
  return mode->ptr(&mode->pyinterpreter());
}

// ((class, device), ...): torch.set_default_device and `with torch.device(...)` are function modes with a device.
PyObject* describe_function_modes() {
  int64_t count = at::impl::PythonTorchFunctionTLS::stack_len();
  Ref tuple = Ref::steal(PyTuple_New(count));
  if (!tuple) return nullptr;
  for (int64_t i = 0; i < count; ++i) {
    PyObject* mode = function_mode(i);
    Ref device = Ref::steal(PyObject_GetAttrString(mode, "device"));
    if (!device) PyErr_Clear();
    PyObject* pair = device ? Py_BuildValue("(sN)", Py_TYPE(mode)->tp_name, PyObject_Str(device.get()))
                            : Py_BuildValue("(sO)", Py_TYPE(mode)->tp_name, Py_None);
    if (pair == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), i, pair);
  }
  return tuple.release();
}

bool append(PyObject* list, const char* name, PyObject* value) {  // steals `value`
  Ref pair = Ref::steal(value != nullptr ? Py_BuildValue("(sN)", name, value) : nullptr);
  return pair && PyList_Append(list, pair.get()) == 0;
}

PyObject* find(PyObject* pairs, const char* name) {  // borrowed
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); ++i) {
    PyObject* pair = PyTuple_GET_ITEM(pairs, i);
    if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2 && PyUnicode_Check(PyTuple_GET_ITEM(pair, 0)) &&
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(pair, 0), name) == 0) {
      return PyTuple_GET_ITEM(pair, 1);
    }
  }
  PyErr_Format(PyExc_ValueError, "guard state lacks %s: it must come from global_state()", name);
  return nullptr;
}

bool parse_number(PyObject* pairs, const char* name, int64_t* number) {
  PyObject* value = find(pairs, name);
  if (value == nullptr) return false;
  *number = PyLong_AsLongLong(value);
  return *number != -1 || !PyErr_Occurred();
}

bool parse_keys(PyObject* pairs, const char* name, uint64_t* keys) {
  PyObject* value = find(pairs, name);
  if (value == nullptr) return false;
  *keys = PyLong_AsUnsignedLongLong(value);
  return *keys != static_cast<uint64_t>(-1) || !PyErr_Occurred();
}

}  // namespace

struct State {
  Flags flags;
  uint64_t keys_included;
  uint64_t keys_excluded;  // autocast is on for a device when its key is not excluded
  Ref pairs;           // as given
  Ref autocast;        // description
  Ref function_modes;  // description
  bool autocast_on;
  std::vector<Ref> modes_seen;  // the mode objects that matched last
};

void DeleteState::operator()(State* state) const { delete state; }

PyObject* state_now() {
  Flags flags = read_flags();
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return nullptr;
  for (const Field& field : kFlagFields) {
    if (!append(list.get(), field.name, PyLong_FromLongLong(flags.*field.value))) return nullptr;
  }
  if (!append(list.get(), "keys_included", PyLong_FromUnsignedLongLong(keys.included_.raw_repr())) ||
      !append(list.get(), "keys_excluded", PyLong_FromUnsignedLongLong(keys.excluded_.raw_repr())) ||
      !append(list.get(), "autocast", describe_autocast()) ||
      !append(list.get(), "modes", describe_function_modes())) {
    return nullptr;
  }
  return PyList_AsTuple(list.get());
}

StatePointer state_parse(PyObject* pairs) {
  if (!PyTuple_Check(pairs)) {
    PyErr_SetString(PyExc_TypeError, "guard state must be the tuple from global_state()");
    return nullptr;
  }
  StatePointer state(new State{});
  state->pairs = Ref::share(pairs);
  for (const Field& field : kFlagFields) {
    if (!parse_number(pairs, field.name, &(state->flags.*field.value))) return nullptr;
  }
  if (!parse_keys(pairs, "keys_included", &state->keys_included) ||
      !parse_keys(pairs, "keys_excluded", &state->keys_excluded)) {
    return nullptr;
  }
  state->autocast = Ref::share(find(pairs, "autocast"));
  state->function_modes = Ref::share(find(pairs, "modes"));
  if (!state->autocast || !state->function_modes) return nullptr;
  state->autocast_on = PyTuple_Check(state->autocast.get()) && PyTuple_GET_SIZE(state->autocast.get()) > 0;
  return state;
}

namespace {

bool same_description(PyObject* expected, PyObject* now) {  // steals `now`
  Ref held = Ref::steal(now);
  if (!held) {
    PyErr_Clear();
    return false;
  }
  return same_constant(expected, held.get());
}

bool is_precision(PyObject* name) {
  return PyUnicode_CompareWithASCIIString(name, "matmul_precision_cuda") == 0 ||
         PyUnicode_CompareWithASCIIString(name, "matmul_precision_mkldnn") == 0;
}

bool function_modes_hold(State& expected) {
  int64_t count = expected.flags.function_modes;
  bool seen = static_cast<int64_t>(expected.modes_seen.size()) == count;
  for (int64_t i = 0; seen && i < count; ++i) {
    seen = function_mode(i) == expected.modes_seen[static_cast<size_t>(i)].get();
  }
  if (seen) return true;
  if (!same_description(expected.function_modes.get(), describe_function_modes())) return false;
  expected.modes_seen.clear();
  for (int64_t i = 0; i < count; ++i) expected.modes_seen.push_back(Ref::share(function_mode(i)));
  return true;
}

}  // namespace

bool state_holds(State& expected, bool precision) {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  if (keys.included_.raw_repr() != expected.keys_included || keys.excluded_.raw_repr() != expected.keys_excluded) {
    return false;
  }
  const Flags& flags = expected.flags;
  if (!thread_flags_hold(flags) || !process_flags_hold(flags)) return false;
  if (precision && !precision_holds(flags)) return false;
  if (expected.autocast_on && !same_description(expected.autocast.get(), describe_autocast())) return false;
  // A dispatch mode shows in the included keys, so only a changed number of them is left to see.
  if (flags.dispatch_modes != 0 && c10::impl::TorchDispatchModeTLS::stack_len() != flags.dispatch_modes) return false;
  return flags.function_modes == 0 || function_modes_hold(expected);
}

PyObject* state_explain(State& expected, bool precision) {
  Ref now = Ref::steal(state_now());
  if (!now) return nullptr;
  Ref lines = Ref::steal(PyList_New(0));
  Ref separator = Ref::steal(PyUnicode_FromString("; "));
  if (!lines || !separator) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(now.get()); ++i) {
    PyObject* pair = PyTuple_GET_ITEM(now.get(), i);
    PyObject* name = PyTuple_GET_ITEM(pair, 0);
    PyObject* value = PyTuple_GET_ITEM(pair, 1);
    PyObject* wanted = find(expected.pairs.get(), PyUnicode_AsUTF8(name));
    if (wanted == nullptr) return nullptr;
    if (same_constant(value, wanted) || (!precision && is_precision(name))) continue;
    Ref line = Ref::steal(PyUnicode_FromFormat("%U: now %R, expected %R", name, value, wanted));
    if (!line || PyList_Append(lines.get(), line.get()) < 0) return nullptr;
  }
  return PyUnicode_Join(separator.get(), lines.get());
}

#endif

}  // namespace dyncomp
