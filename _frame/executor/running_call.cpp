#include "executor/running_call.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "executor/inputs.h"

namespace dyncomp::executor {

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

RunningCall::~RunningCall() {
  frame_->leave();
  program_.give_frame(std::move(frame_));
}

void RunningCall::borrow(PyObject* const* inputs) {
  for (int i = 0; i < program_.inputs; ++i) {
    if (program_.is_tensor(i)) {
      frame_->slots[i] = c10::MaybeOwnedTraits<at::Tensor>::createBorrow(THPVariable_Unpack(inputs[i]));
    } else {
      number_bits(program_.kinds[i], inputs[i], &frame_->numbers[i]);
    }
  }
  frame_->enter();
}

void RunningCall::own(std::vector<at::Tensor>&& tensors, const std::vector<PlacedNumber>& numbers) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    frame_->slots[i] = std::move(tensors[i]);
  }
  for (const PlacedNumber& number : numbers) {
    frame_->numbers[number.place] = number.bits;
  }
  frame_->owns_inputs = true;
  frame_->enter();
}

void RunningCall::run() {
  if (program_.heavy && PyGILState_Check()) {
    py::gil_scoped_release others_run;
    program_.run(*frame_);
  } else {
    program_.run(*frame_);
  }
}

}  // namespace dyncomp::executor
