// The Python type `Plan`: a program that is called by vectorcall.
#pragma once

#include <Python.h>

#include <vector>

#include <ATen/core/Tensor.h>

#include "executor/inputs.h"

namespace dyncomp::executor {

// A new reference to the type, or nullptr with an exception set.
PyObject* make_plan_type();

bool is_plan(PyObject* object);

// Calls a plan from native code, with or without the interpreter's lock. The plan drops an input that was moved here as
// soon as its code frees it; at the places of `numbers` there is no tensor. Outputs that are no tensors come back undefined.
std::vector<at::Tensor> run_plan(PyObject* plan, std::vector<at::Tensor> inputs, const std::vector<PlacedNumber>& numbers = {});

// The same with a caller's objects, which must live as long as the call. Outputs that are numbers are undefined among the
// tensors and stand in `numbers`. Throws python_error where the objects do not fit.
std::vector<at::Tensor> run_plan(PyObject* plan, PyObject* const* inputs, std::size_t count, std::vector<PlacedNumber>& numbers);

}  // namespace dyncomp::executor
