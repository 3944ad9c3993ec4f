#include "executor/leaf_hooks.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

namespace dyncomp::executor {

PyObject* accumulation_has_hooks(PyObject* object) {
  HANDLE_TH_ERRORS
  bool found = false;
  if (THPVariable_Check(object)) {
    // The node lives only as long as somebody holds it: a graph, or who registered a hook.
    auto node = torch::autograd::impl::try_get_grad_accumulator(THPVariable_Unpack(object));
    found = node && !(node->pre_hooks().empty() && node->post_hooks().empty());
  }
  return PyBool_FromLong(found ? 1 : 0);
  END_HANDLE_TH_ERRORS
}

}  // namespace dyncomp::executor
