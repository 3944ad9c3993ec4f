// One call of a program: its frame, lent the caller's inputs and given back whatever happens.
#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "executor/inputs.h"
#include "executor/program.h"

namespace dyncomp::executor {

// Whether a call's arguments are the program's inputs; false with an exception.
bool check_arguments(const Program& program, PyObject* const* args, Py_ssize_t count, PyObject* names);

class RunningCall {
 public:
  explicit RunningCall(const Program& program) : program_(program), frame_(program.take_frame()) {}
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  // Lends the caller's tensors, which must live as long as the call; `inputs` fit the program (`check_arguments`).
  void borrow(PyObject* const* inputs);
  // The caller gives its tensors away. At the places of `numbers` there is no tensor; they fit the program.
  void own(std::vector<at::Tensor>&& tensors, const std::vector<PlacedNumber>& numbers = {});

  // Work of some size runs without the interpreter's lock, as eager's operators do; handing the lock over costs more than a
  // tiny kernel takes. The caller holds the lock or not.
  void run();

  Frame& frame() { return *frame_; }

 private:
  const Program& program_;
  std::unique_ptr<Frame> frame_;
};

}  // namespace dyncomp::executor
