// Global and thread state that changes what tensor code does: grad and inference mode, autocast, default dtype,
// determinism, matmul precision, modes. Empty in a build without torch.
#pragma once
#include <Python.h>

#include <memory>

namespace dyncomp {

struct State;
struct DeleteState {
  void operator()(State* state) const;
};
using StatePointer = std::unique_ptr<State, DeleteState>;

// The state now, as a plain tuple of (name, value): a new reference.
PyObject* state_now();
// Compiled from such a tuple; nullptr with an exception.
StatePointer state_parse(PyObject* pairs);
// `precision`: compare the matmul precision too.
bool state_holds(State& expected, bool precision);
// "name: now X, expected Y" for what differs: a new reference.
PyObject* state_explain(State& expected, bool precision);

}  // namespace dyncomp
