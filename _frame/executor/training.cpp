#include "executor/training.h"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/as_strided.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>

#include "executor/autograd.h"
#include "executor/overlap.h"
#include "executor/plan_object.h"
#include "executor/text.h"

namespace dyncomp::executor {

namespace {

struct TrainingPlanObject {
  PyObject_HEAD
  vectorcallfunc call;
  TrainingPtr training;
  PyObject* weakrefs;
};

TrainingPlanObject* plan_of(PyObject* self) { return reinterpret_cast<TrainingPlanObject*>(self); }

// ---- one call ----

Values unpack(PyObject* const* objects, std::size_t count) {
  Values values;
  values.tensors.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (THPVariable_Check(objects[i])) [[likely]] {
      values.tensors[i] = THPVariable_Unpack(objects[i]);
      continue;
    }
    PlacedNumber number = number_of(static_cast<int>(i), objects[i]);
    TORCH_CHECK_TYPE(number.kind != NumberType::kNone, "input or value ", text(i), " of a training plan must be a tensor or a number, not ",
                     Py_TYPE(objects[i])->tp_name);
    values.numbers.push_back(number);
  }
  return values;
}

bool is_recorded(const Training& training, const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled() || training.differentiable.empty()) {
    return false;
  }
  for (int index : training.requiring) {
    if (inputs[index].requires_grad()) {
      return true;
    }
  }
  return false;
}

// The graph was made for inputs that share no memory with one that it writes.
bool holds_no_longer(const Training& training, const std::vector<at::Tensor>& inputs) {
  if (!training.writes || inputs.size() == 1) {
    return false;
  }
  return shares_written_memory(inputs, training.written);
}

// Whether autograd allows the writes in place; where it does not, the program itself raises at the right place.
bool may_be_written(const Training& training, const std::vector<at::Tensor>& inputs) {
  for (int target : training.rebased) {
    if (target < 0) {
      continue;
    }
    try {
      torch::autograd::check_inplace(inputs[target], true);
    } catch (const c10::Error&) {
      return false;
    }
  }
  return true;
}

// An input that is no view takes its new value and its place in the history right here.
void rebase(const at::Tensor& input, const at::Tensor& value, const CompiledBackward::Ref& node) {
  {
    at::AutoDispatchBelowADInplaceOrView below;
    input.copy_(value);
  }
  torch::autograd::increment_version(input);
  torch::autograd::impl::rebase_history(input, {node, node->add_input_metadata(input)});
}

PyObject* run_original(const Training& training, PyObject* const* args, Py_ssize_t count) {
  PyObject* result = PyObject_Vectorcall(training.original.get(), args, static_cast<std::size_t>(count), nullptr);
  if (result == nullptr || PyTuple_Check(result)) {
    return result;
  }
  py::object owned = py::reinterpret_steal<py::object>(result);
  return PyList_Check(result) ? PyList_AsTuple(result) : PyTuple_Pack(1, result);
}

at::Tensor generator_state() {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

// Puts a node behind the differentiable raw outputs.
void give_history(const TrainingPtr& training, const Values& given, std::vector<at::Tensor>& values, at::Tensor state) {
  const std::vector<at::Tensor>& inputs = given.tensors;
  auto* compiled = new CompiledBackward(training);
  CompiledBackward::Ref node = own_node(compiled);
  for (int index : training->requiring) {
    node->add_next_edge(inputs[index].requires_grad() ? torch::autograd::impl::gradient_edge(inputs[index]) : torch::autograd::Edge());
  }
  std::vector<int> views;
  for (int index : training->differentiable) {
    at::Tensor& value = values[index];
    if (int target = training->rebased[index]; target >= 0) {
      if (!inputs[target].is_view()) {
        rebase(inputs[target], value, node);
        continue;
      }
      views.push_back(index);
    }
    if (value.is_view()) {  // of fresh memory: to autograd it is a tensor of its own
      at::Tensor own = value.detach();
      for (at::Tensor& other : values) {
        if (&other != &value && other.is_same(value)) {
          other = own;
        }
      }
      value = own;
    }
    torch::autograd::set_history(value, node);
  }
  for (int index : views) {  // autograd has rules of its own for writes to views
    inputs[training->rebased[index]].copy_(values[index]);
  }
  compiled->keep(given, values, std::move(state));
}

at::Tensor plain_view_of(const at::Tensor& base, const TrainingOutput& rule) {
  int64_t offset = base.storage_offset() + rule.offset;
  if (rule.differentiable || !base.requires_grad()) {
    return at::as_strided(base, rule.sizes, rule.strides, offset);
  }
  at::AutoGradMode off(false);
  at::Tensor alias = base.detach();
  bool same = alias.sizes() == at::IntArrayRef(rule.sizes) && alias.strides() == at::IntArrayRef(rule.strides) && rule.offset == 0;
  return same ? alias : at::as_strided(alias, rule.sizes, rule.strides, offset);
}

// The whole number that the forward returned at this place.
int64_t whole_number_at(const Values& values, int place) {
  for (const PlacedNumber& number : values.numbers) {
    if (number.place == place) {
      return number.bits;
    }
  }
  TORCH_INTERNAL_ASSERT(false, "a training plan's forward returned no number at ", text(place));
}

at::Tensor view_of(const at::Tensor& base, const TrainingOutput& rule, const Values& returned) {
  if (rule.from.empty()) {
    return plain_view_of(base, rule);
  }
  TrainingOutput filled = rule;
  std::size_t rank = rule.sizes.size();
  for (std::size_t i = 0; i < rule.from.size(); ++i) {
    if (rule.from[i] >= 0) {
      (i < rank ? filled.sizes[i] : i < 2 * rank ? filled.strides[i - rank] : filled.offset) = whole_number_at(returned, rule.from[i]);
    }
  }
  return plain_view_of(base, filled);
}

// The number that the forward returned at this place.
PyObject* number_at(const Values& values, int place) {
  for (const PlacedNumber& number : values.numbers) {
    if (number.place == place) {
      return make_number(number.kind, number.bits);
    }
  }
  Py_RETURN_NONE;
}

PyObject* make_output(const TrainingOutput& rule, PyObject* const* args, const std::vector<at::Tensor>& inputs, const Values& returned,
                      PyObject* made) {
  const std::vector<at::Tensor>& values = returned.tensors;
  switch (rule.kind) {
    case TrainingOutput::Kind::kRaw:
      return values[rule.index].defined() ? THPVariable_Wrap(values[rule.index]) : number_at(returned, rule.index);
    case TrainingOutput::Kind::kInput:
      return Py_NewRef(args[rule.index]);
    case TrainingOutput::Kind::kOutput:
      return Py_NewRef(PyTuple_GET_ITEM(made, rule.index));
    case TrainingOutput::Kind::kConst:
      return Py_NewRef(rule.value);
    case TrainingOutput::Kind::kRawView:
      return THPVariable_Wrap(view_of(values[rule.index], rule, returned));
    case TrainingOutput::Kind::kInputView:
      return THPVariable_Wrap(view_of(inputs[rule.index], rule, returned));
  }
  return nullptr;
}

PyObject* make_outputs(const Training& training, PyObject* const* args, const std::vector<at::Tensor>& inputs,
                       const Values& values) {
  py::tuple result = py::reinterpret_steal<py::tuple>(PyTuple_New(static_cast<Py_ssize_t>(training.outputs.size())));
  for (std::size_t i = 0; i < training.outputs.size(); ++i) {
    PyObject* value = make_output(training.outputs[i], args, inputs, values, result.ptr());
    if (value == nullptr) {
      throw py::error_already_set();
    }
    PyTuple_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i), value);
  }
  return result.release().ptr();
}

Values run_forward(const Training& training, PyObject* const* args, std::size_t count) {
  at::AutoGradMode off(false);
  py::object forward = py::reinterpret_borrow<py::object>(training.forward.get());
  if (is_plan(forward.ptr())) {
    Values values;
    values.tensors = run_plan(forward.ptr(), args, count, values.numbers);
    return values;
  }
  PyObject* returned = PyObject_Vectorcall(forward.ptr(), args, count, nullptr);
  if (returned == nullptr) {
    throw py::error_already_set();
  }
  py::object owned = py::reinterpret_steal<py::object>(returned);
  TORCH_CHECK_TYPE(PyTuple_Check(returned), "the forward of a training plan must return a tuple");
  return unpack(PySequence_Fast_ITEMS(returned), static_cast<std::size_t>(PyTuple_GET_SIZE(returned)));
}

PyObject* call_training(PyObject* self, PyObject* const* args, std::size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  TrainingPtr training = plan_of(self)->training;  // the plan may be replaced meanwhile
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  TORCH_CHECK_TYPE(names == nullptr || PyTuple_GET_SIZE(names) == 0, "a training plan takes no keyword arguments");
  TORCH_CHECK_TYPE(count == training->inputs, "a training plan with ", text(training->inputs), " inputs was called with ", text(count));
  Values given = unpack(args, static_cast<std::size_t>(count));
  const std::vector<at::Tensor>& inputs = given.tensors;
  if (holds_no_longer(*training, inputs)) {
    return run_original(*training, args, count);
  }
  bool recorded = is_recorded(*training, inputs);
  if (recorded && training->rebases && !may_be_written(*training, inputs)) {
    return run_original(*training, args, count);
  }
  at::Tensor state = recorded && training->draws ? generator_state() : at::Tensor();
  Values values = run_forward(*training, args, static_cast<std::size_t>(count));
  if (recorded) {
    give_history(training, given, values.tensors, std::move(state));
  } else if (training->rebases) {
    for (int index : training->differentiable) {
      if (int target = training->rebased[index]; target >= 0) {
        inputs[target].copy_(values.tensors[index]);
      }
    }
  }
  return make_outputs(*training, args, inputs, values);
  END_HANDLE_TH_ERRORS
}

// ---- construction ----

// A size, stride or offset: an int, or ("raw", k) for the number that is raw output k.
int64_t read_number(py::handle number, std::vector<int>& from) {
  if (!py::isinstance<py::tuple>(number)) {
    from.push_back(-1);
    return number.cast<int64_t>();
  }
  auto [kind, index] = number.cast<std::pair<std::string, int>>();
  if (kind != "raw") {
    throw py::value_error("a number of a view must be an int or (\"raw\", k), not " + kind);
  }
  from.push_back(index);
  return 0;
}

TrainingOutput read_output(const py::tuple& rule) {
  using Kind = TrainingOutput::Kind;
  TrainingOutput output{Kind::kConst};
  std::string kind = rule[0].cast<std::string>();
  if (kind == "view") {
    py::tuple base = rule[1].cast<py::tuple>();
    output.kind = base[0].cast<std::string>() == "raw" ? Kind::kRawView : Kind::kInputView;
    output.index = base[1].cast<int>();
    for (py::handle size : rule[2].cast<py::sequence>()) {
      output.sizes.push_back(read_number(size, output.from));
    }
    for (py::handle stride : rule[3].cast<py::sequence>()) {
      output.strides.push_back(read_number(stride, output.from));
    }
    if (output.sizes.size() != output.strides.size()) {
      throw py::value_error("a view has as many sizes as strides");
    }
    output.offset = read_number(rule[4], output.from);
    if (std::all_of(output.from.begin(), output.from.end(), [](int index) { return index < 0; })) {
      output.from.clear();
    }
    output.differentiable = rule[5].cast<bool>();
  } else if (kind == "const") {
    output.value = py::object(rule[1]).ptr();
  } else {
    output.kind = kind == "raw" ? Kind::kRaw : kind == "input" ? Kind::kInput : Kind::kOutput;
    output.index = rule[1].cast<int>();
  }
  return output;
}

// The number in a rule's reach, or ValueError.
void check_index(int index, std::size_t limit, const char* what) {
  if (index < 0 || static_cast<std::size_t>(index) >= limit) {
    throw py::value_error(std::string("a training plan has no ") + what + " " + std::to_string(index));
  }
}

void check(const Training& training, int values) {
  for (int index : training.requiring) {
    check_index(index, training.inputs, "input");
  }
  for (int index : training.differentiable) {
    check_index(index, training.raw, "raw output");
  }
  for (const SavedValue& one : training.saved) {
    check_index(one.index, one.input ? training.inputs : values, one.input ? "input" : "value");
  }
  for (std::size_t i = 0; i < training.outputs.size(); ++i) {
    const TrainingOutput& rule = training.outputs[i];
    using Kind = TrainingOutput::Kind;
    if (rule.kind == Kind::kRaw || rule.kind == Kind::kRawView) {
      check_index(rule.index, training.raw, "raw output");
    } else if (rule.kind == Kind::kInput || rule.kind == Kind::kInputView) {
      check_index(rule.index, training.inputs, "input");
    } else if (rule.kind == Kind::kOutput) {
      check_index(rule.index, i, "earlier output");
    }
    for (int index : rule.from) {
      if (index >= 0) {
        check_index(index, training.raw, "raw output");
      }
    }
  }
}

PyObject* new_training_plan(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  static const char* names[] = {"forward", "original", "prepare", "rerun", "inputs", "raw", "values", "requiring", "differentiable",
                                "saved", "written", "outputs", "draws", "rebased", nullptr};
  PyObject *forward, *original, *prepare, *rerun, *requiring, *differentiable, *saved, *written, *outputs, *rebased;
  int inputs, raw, values, draws;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OOOOiiiOOOOOpO:TrainingPlan", const_cast<char**>(names), &forward, &original, &prepare, &rerun,
                                   &inputs, &raw, &values, &requiring, &differentiable, &saved, &written, &outputs, &draws, &rebased)) {
    return nullptr;
  }
  auto training = std::make_shared<Training>();
  training->inputs = inputs;
  training->raw = raw;
  training->draws = draws != 0;
  training->requiring = py::cast<std::vector<int>>(py::handle(requiring));
  training->differentiable = py::cast<std::vector<int>>(py::handle(differentiable));
  for (const auto& [kind, index] : py::cast<std::vector<std::pair<std::string, int>>>(py::handle(saved))) {
    training->saved.push_back({kind == "input", index});
  }
  training->written.resize(static_cast<std::size_t>(inputs));
  for (int index : py::cast<std::vector<int>>(py::handle(written))) {
    check_index(index, training->written.size(), "input");
    training->written[index] = training->writes = true;
  }
  training->rebased.resize(static_cast<std::size_t>(raw), -1);
  for (const auto& [input, value] : py::cast<std::vector<std::pair<int, int>>>(py::handle(rebased))) {
    check_index(input, training->written.size(), "input");
    check_index(value, training->rebased.size(), "raw output");
    training->rebased[value] = input;
    training->rebases = true;
  }
  py::tuple rules = py::tuple(py::reinterpret_borrow<py::object>(outputs));
  for (py::handle rule : rules) {
    training->outputs.push_back(read_output(rule.cast<py::tuple>()));
  }
  training->kept = SharedObject(rules.ptr());
  training->forward = SharedObject(forward);
  training->original = SharedObject(original);
  training->prepare = SharedObject(prepare);
  training->rerun = SharedObject(rerun);
  check(*training, values);
  auto* self = reinterpret_cast<TrainingPlanObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) {
    return nullptr;
  }
  self->call = call_training;
  new (&self->training) TrainingPtr(std::move(training));
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

PyObject* become(PyObject* self, PyObject* other) {
  if (Py_TYPE(other) != Py_TYPE(self)) {
    PyErr_SetString(PyExc_TypeError, "a training plan can only become another training plan");
    return nullptr;
  }
  TrainingPtr before = plan_of(self)->training;  // its objects die after the swap
  plan_of(self)->training = plan_of(other)->training;
  Py_RETURN_NONE;
}

// Visits what the plan holds; nodes of autograd that hold the same are not known to the collector.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const TrainingPtr& training = plan_of(self)->training;
  if (training && training.use_count() == 1) {
    for (const SharedObject* object : {&training->forward, &training->original, &training->prepare, &training->rerun, &training->kept}) {
      Py_VISIT(object->get());
    }
    for (const Backward& backward : training->backwards) {
      Py_VISIT(backward.call.get());
    }
  }
  return 0;
}

int clear(PyObject* self) {
  plan_of(self)->training = std::make_shared<Training>();
  return 0;
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (plan_of(self)->weakrefs != nullptr) {
    PyObject_ClearWeakRefs(self);
  }
  plan_of(self)->training.~TrainingPtr();
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"become", become, METH_O, "become(other)\n--\n\nCalls from now on run `other`'s program; backwards of earlier calls are unaffected."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(TrainingPlanObject, call), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TrainingPlanObject, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

const char doc[] =
    "A compiled function that autograd goes through. Called with its input tensors it runs `forward` and returns the user's\n"
    "outputs; those that are differentiable have one node of autograd behind them, which runs a compiled backward.";

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>(doc)},
    {Py_tp_new, reinterpret_cast<void*>(new_training_plan)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {"dyncomp._frame._exec.TrainingPlan", sizeof(TrainingPlanObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, slots};

}  // namespace

PyObject* make_training_plan_type() { return PyType_FromSpec(&spec); }

}  // namespace dyncomp::executor
