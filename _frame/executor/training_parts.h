// The parts of a training plan's life, one a file: made from plain data, called, put into the history, its outputs made.
#pragma once

#include <Python.h>

#include <cstddef>
#include <vector>

#include "executor/training.h"

namespace dyncomp::executor {

// training_build.cpp: the program, from the arguments of `TrainingPlan(...)`. Throws Python's error, py::value_error or c10::Error.
TrainingPtr read_training(PyObject* args, PyObject* kwargs);

// training_call.cpp: one call; a new reference to the tuple of outputs, or nullptr with an exception set. Throws c10::Error too.
PyObject* call_training(const TrainingPtr& training, PyObject* const* args, std::size_t count);

// training_history.cpp: an input that is put back whole was written `times` times in eager, of which its version counter knows one.
void count_writes(const at::Tensor& input, uint32_t times);

// Puts a node behind the differentiable raw outputs among `values`, which become what the user sees.
// `state`: that of the default generator before the forward, or undefined. `originals`: as `Training::originals`, or empty.
void give_history(const TrainingPtr& training, const Values& given, std::vector<at::Tensor>& values, at::Tensor state,
                  std::vector<at::Tensor> originals);

// training_outputs.cpp: a new tuple of the user's outputs. Throws py::error_already_set or c10::Error.
PyObject* make_outputs(const Training& training, PyObject* const* args, const std::vector<at::Tensor>& inputs, const Values& returned);

}  // namespace dyncomp::executor
