// The Python type `Plan`: a program that is called by vectorcall.
#pragma once

#include <Python.h>

#include <vector>

#include <ATen/core/Tensor.h>

namespace dyncomp::executor {

// A new reference to the type, or nullptr with an exception set.
PyObject* make_plan_type();

bool is_plan(PyObject* object);

// Calls a plan from native code, with or without the interpreter's lock. The plan drops an input that was moved here as
// soon as its code frees it. Outputs that are no tensors come back undefined.
std::vector<at::Tensor> run_plan(PyObject* plan, std::vector<at::Tensor> inputs);

}  // namespace dyncomp::executor
