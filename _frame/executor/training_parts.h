// The parts of a training plan's life, one a file: made from plain data, called, put into the history, its outputs made.
#pragma once

#include <Python.h>

#include <cstddef>
#include <vector>

#include <torch/csrc/autograd/function.h>

#include "executor/training.h"

namespace dyncomp::executor {

// training_build.cpp: the program, from the arguments of `TrainingPlan(...)`. Throws Python's error, py::value_error or c10::Error.
TrainingPtr read_training(PyObject* args, PyObject* kwargs);

// training_call.cpp: one call; a new reference to the tuple of outputs, or nullptr with an exception set. Throws c10::Error too.
PyObject* call_training(const TrainingPtr& training, PyObject* const* args, std::size_t count);

// training_outputs.cpp: another view of the same part of its base; what it is used for leaves the history of the given one as it is.
at::Tensor same_part(const at::Tensor& view);

// training_outputs.cpp: the memory of a view was written since: autograd makes another node of it when it is next asked.
void make_stale(const at::Tensor& view);

// training_history.cpp: an input that is put back whole was written `times` times in eager, of which its version counter knows one.
void count_writes(const at::Tensor& input, uint32_t times);

// training_outputs.cpp: the user's outputs of one call. Views are made when they are first asked for, once what they look at has its
// history. What it is given must outlive it.
class OutputMaker {
 public:
  OutputMaker(const Training& training, PyObject* const* args, const std::vector<at::Tensor>& inputs, const Values& returned)
      : training_(training), args_(args), inputs_(inputs), returned_(returned) {}

  // The output at `place`, which is a view.
  const at::Tensor& view(std::size_t place);
  // A new tuple of all. Throws py::error_already_set or c10::Error.
  PyObject* tuple();

 private:
  PyObject* output(std::size_t place, PyObject* made);
  at::Tensor called_view_of(const at::Tensor& base, const TrainingOutput& rule);
  at::Tensor view_of(const at::Tensor& base, const TrainingOutput& rule);

  const Training& training_;
  PyObject* const* args_;
  const std::vector<at::Tensor>& inputs_;
  const Values& returned_;
  std::vector<at::Tensor> views_;  // by output, as far as they are made; empty where none is
  std::vector<std::pair<int, std::vector<at::Tensor>>> lists_;  // by `TrainingOutput::first`: all results of the last call
};

// By position in `requiring` where inputs in `viewed` and their bases are in the history now, before the call writes them; or empty.
std::vector<torch::autograd::Edge> places_now(const Training& training, const std::vector<at::Tensor>& inputs);

// Puts a node behind the differentiable raw outputs among `values`, which become what the user sees. `early`: of before the forward.
// `state`: that of the default generator before the forward, or undefined. `originals`: as `Training::originals`, or empty.
void give_history(const TrainingPtr& training, const Values& given, std::vector<at::Tensor>& values, OutputMaker& outputs,
                  std::vector<torch::autograd::Edge> early, at::Tensor state, std::vector<at::Tensor> originals);

}  // namespace dyncomp::executor
