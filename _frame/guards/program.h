// Integer programs over the sizes and numbers of a call: the check kind `int_program`.
//
// Payload: (inputs, code, texts), as `dyncomp/shape/program.py` writes it.
//   inputs  ((node, what, dim), ...)   what: "size", "stride", "offset" of a tensor; "int", "float"; "len" of a container
//   code    ((operation, operands...), ...)
//   texts   one a `require`, for explain
// Nothing here runs Python code; an operation without a result (division by zero, overflow) fails the check.
#pragma once
#include <Python.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "numbers.h"

namespace dyncomp {

struct ProgramInput {
  enum class What : uint8_t { size, stride, offset, integer, real, length };
  What what;
  int32_t node;
  int64_t dim;
  int32_t target;  // register
};

struct ProgramStep {
  enum class Special : uint8_t { constant, require, require_eq, require_bits, require_range };
  numbers::Operation operation;  // nullptr: the special one
  Special special;
  bool low_open, high_open;
  int32_t a, b, c;  // registers
  int64_t low, high;
};

struct Program {
  std::vector<ProgramInput> inputs;  // by node, so that a tensor is looked at once
  std::vector<ProgramStep> steps;
  size_t registers() const { return inputs.size() + steps.size(); }

  // The same program for the check itself, which need not know what fails: bounds and equalities of inputs apart from what
  // computes. An open end is the last number there is.
  struct Bound {
    int32_t reg;
    int64_t low, high;
  };
  struct Pair {
    int32_t a, b;
  };
  struct Computed {
    ProgramStep step;
    int32_t target;  // register
  };
  std::vector<Bound> bounds;
  std::vector<Pair> pairs;
  std::vector<Computed> computed;
};

// From the payload of a check on node `position`; nullptr with an exception.
std::unique_ptr<Program> program_build(PyObject* payload, int32_t position);
bool program_holds(const Program& program, PyObject* const* values);
// For explain: -1 if all requirements hold; -2 if an input cannot be read; else the number of the first `require` that fails.
int32_t program_failure(const Program& program, PyObject* const* values);

}  // namespace dyncomp
