#include "executor/plan_object.h"

#include <structmember.h>

#include <cstddef>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "executor/build.h"
#include "executor/fields.h"
#include "executor/inputs.h"
#include "executor/text.h"

namespace dyncomp::executor {

namespace {

struct PlanObject {
  PyObject_HEAD
  vectorcallfunc call;
  BuiltPlan built;
  bool single;
  PyObject* data;       // dict of what the plan was made from, lists frozen to tuples
  PyObject* libraries;  // tuple that keeps the kernels' code loaded
  PyObject* weakrefs;
};

PyTypeObject* plan_type = nullptr;

PlanObject* plan_of(PyObject* self) { return reinterpret_cast<PlanObject*>(self); }

// ---- one call ----

// Lends the caller's tensors to a frame and gives the frame back whatever happens.
class RunningCall {
 public:
  explicit RunningCall(const Program& program) : program_(program), frame_(program.take_frame()) {}

  ~RunningCall() {
    frame_->leave();
    program_.give_frame(std::move(frame_));
  }

  // `inputs` fit the program (`check_arguments`).
  void borrow(PyObject* const* inputs) {
    for (int i = 0; i < program_.inputs; ++i) {
      if (program_.is_tensor(i)) {
        frame_->slots[i] = c10::MaybeOwnedTraits<at::Tensor>::createBorrow(THPVariable_Unpack(inputs[i]));
      } else {
        number_bits(program_.kinds[i], inputs[i], &frame_->numbers[i]);
      }
    }
    frame_->enter();
  }

  void own(std::vector<at::Tensor>&& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      frame_->slots[i] = std::move(tensors[i]);
    }
    frame_->owns_inputs = true;
    frame_->enter();
  }

  Frame& frame() { return *frame_; }

 private:
  const Program& program_;
  std::unique_ptr<Frame> frame_;
};

bool check_arguments(const Program& program, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  if (names != nullptr && PyTuple_GET_SIZE(names) != 0) {
    PyErr_SetString(PyExc_TypeError, "a plan takes no keyword arguments");
    return false;
  }
  if (count != program.inputs) {
    PyErr_Format(PyExc_TypeError, "a plan with %d inputs was called with %zd", program.inputs, count);
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    NumberType kind = program.kinds.empty() ? NumberType::kNone : program.kinds[i];
    int64_t bits;
    if (!fits(kind, args[i])) {
      PyErr_Format(PyExc_TypeError, "input %zd of a plan must be %s, not %.200s", i, kind_text(kind), Py_TYPE(args[i])->tp_name);
      return false;
    }
    if (kind == NumberType::kInt && !number_bits(kind, args[i], &bits)) {
      return false;
    }
  }
  return true;
}

PyObject* make_output(const Output& output, Frame& frame, PyObject* const* args) {
  switch (output.kind) {
    case Output::Kind::kInput:
      return Py_NewRef(args[output.index]);
    case Output::Kind::kConst:
      return Py_NewRef(output.value);
    case Output::Kind::kNumber:
      return make_number(output.number, frame.registers[output.index]);
    case Output::Kind::kSlot:
      break;
  }
  at::Tensor& tensor = frame.slots[output.index];
  return output.last ? THPVariable_Wrap(std::move(tensor)) : THPVariable_Wrap(tensor);
}

PyObject* make_outputs(const PlanObject* plan, Frame& frame, PyObject* const* args) {
  const auto& outputs = plan->built.outputs;
  if (plan->single) {
    return make_output(outputs[0], frame, args);
  }
  PyObject* result = PyTuple_New(static_cast<Py_ssize_t>(outputs.size()));
  for (std::size_t i = 0; result != nullptr && i < outputs.size(); ++i) {
    PyObject* value = make_output(outputs[i], frame, args);
    if (value == nullptr) {
      Py_CLEAR(result);
    } else {
      PyTuple_SET_ITEM(result, static_cast<Py_ssize_t>(i), value);
    }
  }
  return result;
}

// Work of some size runs without the interpreter's lock, as eager's operators do; handing the lock over costs more than a
// tiny kernel takes.
void run_program(const Program& program, Frame& frame) {
  if (program.heavy) {
    py::gil_scoped_release others_run;
    program.run(frame);
  } else {
    program.run(frame);
  }
}

PyObject* call_plan(PyObject* self, PyObject* const* args, std::size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  PlanObject* plan = plan_of(self);
  const Program& program = *plan->built.program;
  if (!check_arguments(program, args, PyVectorcall_NARGS(flags), names)) {
    return nullptr;
  }
  py::object alive = py::reinterpret_borrow<py::object>(self);  // whoever called may swap its plan meanwhile
  RunningCall call(program);
  call.borrow(args);
  run_program(program, call.frame());
  return make_outputs(plan, call.frame(), args);
  END_HANDLE_TH_ERRORS
}

// ---- construction ----

// Lists become tuples and dicts pairs, all the way down, so that nobody changes the data of a plan afterwards.
py::object freeze(py::handle object) {
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    py::tuple frozen(PySequence_Fast_GET_SIZE(object.ptr()));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object.ptr()); ++i) {
      frozen[i] = freeze(PySequence_Fast_GET_ITEM(object.ptr(), i));
    }
    return frozen;
  }
  if (PyDict_Check(object.ptr())) {
    py::list pairs;
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(object)) {
      pairs.append(py::make_tuple(key, freeze(value)));
    }
    return py::tuple(pairs);
  }
  return py::reinterpret_borrow<py::object>(object);
}

// The value of a constant output is the caller's and stays as it is.
py::object freeze_outputs(py::handle outputs) {
  py::list frozen;
  for (PyObject* row : items(outputs.ptr(), "outputs")) {
    frozen.append(py::tuple(py::reinterpret_borrow<py::object>(row)));
  }
  return py::tuple(frozen);
}

PlanObject* alloc_plan(PyTypeObject* type, BuiltPlan built, bool single, PyObject* data, PyObject* libraries) {
  auto* self = reinterpret_cast<PlanObject*>(type->tp_alloc(type, 0));
  if (self != nullptr) {
    self->call = call_plan;
    new (&self->built) BuiltPlan(std::move(built));
    self->single = single;
    self->data = Py_NewRef(data);
    self->libraries = Py_NewRef(libraries);
  }
  return self;
}

PyObject* new_plan(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  static const char* names[] = {"inputs", "slots", "code", "outputs", "constants", "kernels", "ops", "arena", "single", "libraries", nullptr};
  PlanData data{{}, 0, nullptr, nullptr, nullptr, nullptr, nullptr, 0};
  PyObject* inputs = nullptr;
  long long slots = -1, arena = 0;
  int single = 0;
  py::tuple none;
  PyObject* libraries = none.ptr();
  data.constants = data.kernels = data.ops = none.ptr();
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OLOOOOOLpO:Plan", const_cast<char**>(names), &inputs, &slots, &data.code,
                                   &data.outputs, &data.constants, &data.kernels, &data.ops, &arena, &single, &libraries)) {
    return nullptr;
  }
  if (inputs == nullptr || slots < 0 || data.code == nullptr || data.outputs == nullptr) {
    PyErr_SetString(PyExc_TypeError, "a plan needs inputs, slots, code and outputs");
    return nullptr;
  }
  py::tuple kept_libraries = py::reinterpret_borrow<py::object>(libraries);
  py::dict kept;
  BuiltPlan built;
  try {
    using namespace py::literals;
    kept = py::dict("inputs"_a = freeze(inputs), "slots"_a = slots, "constants"_a = freeze(data.constants), "kernels"_a = freeze(data.kernels),
                    "ops"_a = freeze(data.ops), "code"_a = freeze(data.code), "outputs"_a = freeze_outputs(data.outputs),
                    "arena"_a = arena, "single"_a = static_cast<bool>(single));
    built = build_plan({read_inputs(inputs), slots, kept["constants"].ptr(), kept["kernels"].ptr(), kept["ops"].ptr(), kept["code"].ptr(),
                        kept["outputs"].ptr(), arena});
    if (single && built.outputs.size() != 1) {
      throw BuildError("a plan with " + std::to_string(built.outputs.size()) + " outputs cannot be single");
    }
  } catch (const BuildError& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(alloc_plan(type, std::move(built), single != 0, kept.ptr(), kept_libraries.ptr()));
  END_HANDLE_TH_ERRORS
}

int traverse_plan(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(plan_of(self)->data);
  Py_VISIT(plan_of(self)->libraries);
  return 0;
}

void dealloc_plan(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  PlanObject* plan = plan_of(self);
  if (plan->weakrefs != nullptr) {
    PyObject_ClearWeakRefs(self);
  }
  plan->built.~BuiltPlan();
  Py_CLEAR(plan->data);
  Py_CLEAR(plan->libraries);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* plan_data(PyObject* self, PyObject*) { return PyDict_Copy(plan_of(self)->data); }

PyObject* plan_single(PyObject* self, PyObject*) {
  HANDLE_TH_ERRORS
  PlanObject* plan = plan_of(self);
  if (plan->built.outputs.size() != 1) {
    PyErr_Format(PyExc_ValueError, "a plan with %zu outputs has no single form", plan->built.outputs.size());
    return nullptr;
  }
  auto data = py::reinterpret_steal<py::dict>(PyDict_Copy(plan->data));
  data["single"] = true;
  return reinterpret_cast<PyObject*>(alloc_plan(Py_TYPE(self), plan->built, true, data.ptr(), plan->libraries));
  END_HANDLE_TH_ERRORS
}

PyObject* plan_profile(PyObject* self, PyObject* args) {
  HANDLE_TH_ERRORS
  PlanObject* plan = plan_of(self);
  const Program& program = *plan->built.program;
  PyObject* const* inputs = PySequence_Fast_ITEMS(args);
  if (!check_arguments(program, inputs, PyTuple_GET_SIZE(args), nullptr)) {
    return nullptr;
  }
  RunningCall call(program);
  call.borrow(inputs);
  std::vector<int64_t> spent(program.steps.size());
  program.run_timed(call.frame(), spent);
  py::list nanoseconds;
  for (int64_t step : spent) {
    nanoseconds.append(step);
  }
  return nanoseconds.release().ptr();
  END_HANDLE_TH_ERRORS
}

PyObject* repr_plan(PyObject* self) {
  const auto& built = plan_of(self)->built;
  return PyUnicode_FromFormat("<Plan: %d inputs, %zu instructions, %zu outputs>", built.program->inputs, built.program->steps.size(),
                              built.outputs.size());
}

PyMethodDef plan_methods[] = {
    {"data", plan_data, METH_NOARGS, "data()\n--\n\nThe plain data that the plan was made from: `Plan(**plan.data())` is the same plan."},
    {"single", plan_single, METH_NOARGS, "single()\n--\n\nThe same program as a plan that returns its one output itself."},
    {"profile", plan_profile, METH_VARARGS, "profile(*inputs)\n--\n\nRuns once; the nanoseconds that each instruction of `data()['code']` took."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef plan_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PlanObject, call), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PlanObject, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

const char plan_doc[] =
    "A native program over tensors, made from plain data and never changed. Calling it with its inputs runs it below\n"
    "autograd and returns a tuple, or with single=True the one value itself.";

PyType_Slot plan_slots[] = {
    {Py_tp_doc, const_cast<char*>(plan_doc)},
    {Py_tp_new, reinterpret_cast<void*>(new_plan)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_plan)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_plan)},
    {Py_tp_repr, reinterpret_cast<void*>(repr_plan)},
    {Py_tp_methods, plan_methods},
    {Py_tp_members, plan_members},
    {0, nullptr},
};

PyType_Spec plan_spec = {
    "dyncomp._frame._exec.Plan", sizeof(PlanObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, plan_slots};

}  // namespace

PyObject* make_plan_type() {
  PyObject* type = PyType_FromSpec(&plan_spec);
  plan_type = reinterpret_cast<PyTypeObject*>(Py_XNewRef(type));
  return type;
}

bool is_plan(PyObject* object) { return Py_TYPE(object) == plan_type; }

std::vector<at::Tensor> run_plan(PyObject* plan, std::vector<at::Tensor> inputs) {
  const BuiltPlan& built = plan_of(plan)->built;
  const Program& program = *built.program;
  TORCH_CHECK(inputs.size() == static_cast<std::size_t>(program.inputs), "dyncomp: a plan with ", text(program.inputs),
              " inputs was called with ", text(inputs.size()));
  std::vector<at::Tensor> results(built.outputs.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (built.outputs[i].kind == Output::Kind::kInput) {
      results[i] = inputs[built.outputs[i].index];
    }
  }
  RunningCall call(program);
  call.own(std::move(inputs));
  if (program.heavy && PyGILState_Check()) {
    py::gil_scoped_release others_run;
    program.run(call.frame());
  } else {
    program.run(call.frame());
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (built.outputs[i].kind == Output::Kind::kSlot) {
      results[i] = call.frame().slots[built.outputs[i].index];
    }
  }
  return results;
}

}  // namespace dyncomp::executor
