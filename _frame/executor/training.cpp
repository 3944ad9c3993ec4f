// The Python type `TrainingPlan`. What a call does is in training_call.cpp.
#include "executor/training.h"

#include <structmember.h>

#include <cstddef>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "executor/text.h"
#include "executor/training_parts.h"

namespace dyncomp::executor {

namespace {

struct TrainingPlanObject {
  PyObject_HEAD
  vectorcallfunc call;
  TrainingPtr training;
  PyObject* weakrefs;
};

TrainingPlanObject* plan_of(PyObject* self) { return reinterpret_cast<TrainingPlanObject*>(self); }

PyObject* call_plan(PyObject* self, PyObject* const* args, std::size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  TrainingPtr training = plan_of(self)->training;  // the plan may be replaced meanwhile
  TORCH_CHECK_TYPE(names == nullptr || PyTuple_GET_SIZE(names) == 0, "a training plan takes no keyword arguments");
  return call_training(training, args, static_cast<std::size_t>(PyVectorcall_NARGS(flags)));
  END_HANDLE_TH_ERRORS
}

PyObject* new_training_plan(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  TrainingPtr training = read_training(args, kwargs);
  auto* self = reinterpret_cast<TrainingPlanObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) {
    return nullptr;
  }
  self->call = call_plan;
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
    for (const SharedObject* object : {&training->forward, &training->original, &training->prepare, &training->rerun, &training->cut, &training->for_views,
                                       &training->kept}) {
      Py_VISIT(object->get());
    }
    for (const auto& [viewed, variant] : training->variants) {
      Py_VISIT(variant.get());
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

SharedObject::~SharedObject() {
  if (object_ != nullptr && Py_IsInitialized()) {
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(object_);
    PyGILState_Release(state);
  }
}

PyObject* make_training_plan_type() { return PyType_FromSpec(&spec); }

}  // namespace dyncomp::executor
