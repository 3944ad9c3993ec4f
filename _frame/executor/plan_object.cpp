#include "executor/plan_object.h"

#include <structmember.h>

#include <cstddef>
#include <optional>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "executor/build.h"
#include "executor/fields.h"
#include "executor/freeze.h"
#include "executor/inputs.h"
#include "executor/op_memory.h"
#include "executor/overlap.h"
#include "executor/running_call.h"
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
  PyObject* original;   // called in place of the code when an input in `written` shares memory with another; may be nullptr
  std::vector<bool> written;  // by input
  PyObject* weakrefs;
};

PyTypeObject* plan_type = nullptr;

PlanObject* plan_of(PyObject* self) { return reinterpret_cast<PlanObject*>(self); }

// ---- one call ----

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

// What the original returned, in the plan's form.
PyObject* run_original(const PlanObject* plan, PyObject* const* args, Py_ssize_t count) {
  py::object original = py::reinterpret_borrow<py::object>(plan->original);
  bool single = plan->single;
  py::object results = py::reinterpret_steal<py::object>(PyObject_Vectorcall(original.ptr(), args, static_cast<std::size_t>(count), nullptr));
  if (!results || !single) {
    return results.release().ptr();
  }
  return PySequence_GetItem(results.ptr(), 0);
}

PyObject* call_plan(PyObject* self, PyObject* const* args, std::size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  PlanObject* plan = plan_of(self);
  const Program& program = *plan->built.program;
  if (!check_arguments(program, args, PyVectorcall_NARGS(flags), names)) {
    return nullptr;
  }
  py::object alive = py::reinterpret_borrow<py::object>(self);  // whoever called may swap its plan meanwhile
  std::optional<RunningCall> call(std::in_place, program);
  call->borrow(args);
  if (plan->original != nullptr && shares_written_memory({call->frame().slots.data(), plan->written.size()}, plan->written)) {
    call.reset();
    return run_original(plan, args, PyVectorcall_NARGS(flags));
  }
  call->run();
  return make_outputs(plan, call->frame(), args);
  END_HANDLE_TH_ERRORS
}

// The tensors that the code of a plan made, among its outputs.
void take_slots(const BuiltPlan& built, Frame& frame, std::vector<at::Tensor>& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (built.outputs[i].kind == Output::Kind::kSlot) {
      results[i] = frame.slots[built.outputs[i].index];
    }
  }
}

// ---- construction ----

PlanObject* alloc_plan(PyTypeObject* type, BuiltPlan built, bool single, PyObject* data, PyObject* libraries, PyObject* original,
                       std::vector<bool> written) {
  auto* self = reinterpret_cast<PlanObject*>(type->tp_alloc(type, 0));
  if (self != nullptr) {
    self->call = call_plan;
    new (&self->built) BuiltPlan(std::move(built));
    self->single = single;
    self->data = Py_NewRef(data);
    self->libraries = Py_NewRef(libraries);
    self->original = Py_XNewRef(original);
    new (&self->written) std::vector<bool>(std::move(written));
  }
  return self;
}

PyObject* new_plan(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  static const char* names[] = {"inputs", "slots", "code", "outputs", "constants", "kernels", "ops", "arena", "single", "libraries",
                                "written", "original", nullptr};
  PlanData data{{}, 0, nullptr, nullptr, nullptr, nullptr, nullptr, 0};
  PyObject* inputs = nullptr;
  long long slots = -1, arena = 0;
  int single = 0;
  py::tuple none;
  PyObject *libraries = none.ptr(), *written = none.ptr(), *original = Py_None;
  data.constants = data.kernels = data.ops = none.ptr();
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OLOOOOOLpOOO:Plan", const_cast<char**>(names), &inputs, &slots, &data.code,
                                   &data.outputs, &data.constants, &data.kernels, &data.ops, &arena, &single, &libraries, &written, &original)) {
    return nullptr;
  }
  if (inputs == nullptr || slots < 0 || data.code == nullptr || data.outputs == nullptr) {
    PyErr_SetString(PyExc_TypeError, "a plan needs inputs, slots, code and outputs");
    return nullptr;
  }
  py::tuple kept_libraries = py::reinterpret_borrow<py::object>(libraries);
  std::vector<int> indices = py::cast<std::vector<int>>(py::handle(written));
  std::vector<bool> by_input;
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
    if (indices.empty() != (original == Py_None)) {
      throw BuildError("inputs that are written and the original for those that share memory come together");
    }
    by_input.resize(static_cast<std::size_t>(built.program->inputs));
    for (int index : indices) {
      if (index < 0 || index >= built.program->inputs) {
        throw BuildError("no input " + std::to_string(index) + " (the plan has " + std::to_string(built.program->inputs) + ")");
      }
      by_input[index] = true;
    }
  } catch (const BuildError& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(alloc_plan(type, std::move(built), single != 0, kept.ptr(), kept_libraries.ptr(),
                                                original == Py_None ? nullptr : original, std::move(by_input)));
  END_HANDLE_TH_ERRORS
}

// An original may hold what holds the plan.
int clear_plan(PyObject* self) {
  Py_CLEAR(plan_of(self)->original);
  return 0;
}

int traverse_plan(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(plan_of(self)->data);
  Py_VISIT(plan_of(self)->libraries);
  Py_VISIT(plan_of(self)->original);
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
  Py_CLEAR(plan->original);
  plan->written.~vector();
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
  return reinterpret_cast<PyObject*>(
      alloc_plan(Py_TYPE(self), plan->built, true, data.ptr(), plan->libraries, plan->original, plan->written));
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
    {Py_tp_clear, reinterpret_cast<void*>(clear_plan)},
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
  install_op_memory();
  PyObject* type = PyType_FromSpec(&plan_spec);
  plan_type = reinterpret_cast<PyTypeObject*>(Py_XNewRef(type));
  return type;
}

bool is_plan(PyObject* object) { return Py_TYPE(object) == plan_type; }

std::vector<at::Tensor> run_plan(PyObject* plan, std::vector<at::Tensor> inputs, const std::vector<PlacedNumber>& numbers) {
  const BuiltPlan& built = plan_of(plan)->built;
  const Program& program = *built.program;
  TORCH_CHECK(inputs.size() == static_cast<std::size_t>(program.inputs), "dyncomp: a plan with ", text(program.inputs),
              " inputs was called with ", text(inputs.size()));
  int count = 0;
  for (const PlacedNumber& number : numbers) {
    TORCH_CHECK(!program.is_tensor(number.place) && program.kinds[number.place] == number.kind, "dyncomp: input ", text(number.place),
                " of a plan must be another kind of number");
    ++count;
  }
  for (int i = 0; i < program.inputs; ++i) {
    count -= !program.is_tensor(i);
  }
  TORCH_CHECK(count == 0, "dyncomp: a plan was called without a number that it takes");
  std::vector<at::Tensor> results(built.outputs.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (built.outputs[i].kind == Output::Kind::kInput) {
      results[i] = inputs[built.outputs[i].index];
    }
  }
  RunningCall call(program);
  call.own(std::move(inputs), numbers);
  call.run();
  take_slots(built, call.frame(), results);
  return results;
}

std::vector<at::Tensor> run_plan(PyObject* plan, PyObject* const* inputs, std::size_t count, std::vector<PlacedNumber>& numbers) {
  const BuiltPlan& built = plan_of(plan)->built;
  const Program& program = *built.program;
  if (!check_arguments(program, inputs, static_cast<Py_ssize_t>(count), nullptr)) {
    throw python_error();
  }
  std::vector<at::Tensor> results(built.outputs.size());
  RunningCall call(program);
  call.borrow(inputs);
  call.run();
  take_slots(built, call.frame(), results);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Output& output = built.outputs[i];
    if (output.kind == Output::Kind::kNumber) {
      numbers.push_back({static_cast<int>(i), output.number, call.frame().registers[output.index]});
    } else if (output.kind == Output::Kind::kInput) {
      if (program.is_tensor(output.index)) {
        results[i] = THPVariable_Unpack(inputs[output.index]);
      } else {
        numbers.push_back(number_of(static_cast<int>(i), inputs[output.index]));
      }
    } else if (output.kind == Output::Kind::kConst) {
      PlacedNumber number = number_of(static_cast<int>(i), output.value);
      if (number.kind != NumberType::kNone) {
        numbers.push_back(number);
      }
    }
  }
  return results;
}

}  // namespace dyncomp::executor
