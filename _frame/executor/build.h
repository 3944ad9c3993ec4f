// Builds a program from a plan's plain data.
#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "executor/program.h"

namespace dyncomp::executor {

// The parts of a plan, as handed to `Plan(...)`; all references are borrowed.
struct PlanData {
  std::vector<NumberType> inputs;
  int64_t slots;
  PyObject *constants, *kernels, *ops, *code, *outputs;
  int64_t arena;
};

// How to make one returned value.
struct Output {
  enum class Kind { kSlot, kInput, kConst, kNumber } kind;
  int index;        // of the slot, input or register
  bool last;        // no later output needs this slot's tensor
  PyObject* value;  // of a constant, borrowed from the plan's data
  NumberType number = NumberType::kInt;  // what a register holds
};

struct BuiltPlan {
  std::shared_ptr<const Program> program;  // shared by the forms of a plan
  std::vector<Output> outputs;
};

// Throws BuildError, and std::exception from torch for values that it refuses.
BuiltPlan build_plan(const PlanData& data);

}  // namespace dyncomp::executor
