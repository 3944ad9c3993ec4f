// Reads one instruction (a tuple) while a plan is built, and checks it against what earlier instructions left behind.
// Every mistake is a BuildError, which Python sees as a ValueError that names the instruction.
#pragma once

#include <Python.h>

#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "executor/parallel.h"
#include "executor/program.h"

namespace dyncomp::executor {

struct BuildError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What is known of a slot at this point of the program.
struct SlotState {
  bool live = false;
  int generation = 0;       // counts the tensors that the slot held
  bool constant = false;
  bool over_arena = false;  // scratch or a view of it: must not leave the plan
  bool escapes = false;     // listed among the outputs
  bool number = false;      // an input that is no tensor
  int root = -1;            // a view's base that is no view itself, -1: no view
  int root_generation = 0;  // of the root's slot when the view was made
  bool absolute = false;    // a view whose offset counts from the start of the storage
  Int offset;
};

// A number known when the plan was made, or a register: an int, a truth, or a float by its bits.
struct Number {
  Int bits;
  NumberType type;
  c10::Scalar get(const Frame& frame) const;
};

// The program under construction.
struct Builder {
  Program& program;
  std::vector<SlotState> slots;
  std::vector<NumberType> registers;  // from the instruction that wrote each last
  std::vector<KernelFn> kernels;
  std::vector<c10::OperatorHandle> ops;
  bool arena_in_call = false;  // an `arena` step was read

  SlotState& readable(int64_t slot);
  // A slot that may become live; `define` makes it so.
  SlotState& definable(int64_t slot);
  int define(int64_t slot);
  int define_register(int64_t reg, NumberType type = NumberType::kInt);
  // The register that `("s", r)` or `("f", r)` names, and what it holds.
  Number register_named(PyObject* name) const;
};

// A slot mentioned among an operator's arguments; `set_slot_type` tells which Python class stands for it.
void set_slot_type(PyTypeObject* type);
int64_t slot_index(PyObject* object);  // -1: not a Slot

int64_t to_int64(PyObject* object, const char* what);
std::string to_text(PyObject* object, const char* what);
Int to_int(Builder& builder, PyObject* object, const char* what);  // an int or ("s", register)
Number to_number(Builder& builder, PyObject* object, const char* what);  // a bool, int, float, ("s", r) or ("f", r)
bool is_register(PyObject* object);  // ("s", r) or ("f", r)
bool is_float_register(PyObject* object);
c10::Scalar to_scalar(PyObject* object, const char* what);  // of a bool, int, float or complex
at::ScalarType to_dtype(PyObject* object);
c10::Device to_device(PyObject* object);
// The items of a tuple or list, borrowed.
std::vector<PyObject*> items(PyObject* object, const char* what);

class Fields {
 public:
  Fields(Builder& builder, PyObject* instruction, std::size_t count);

  int read(const char* what);           // a slot that holds a tensor
  int define(const char* what);         // a slot that becomes live
  int define_register(const char* what) { return builder.define_register(integer(what)); }
  std::vector<int> read_many(const char* what);
  int64_t integer(const char* what);
  Int number(const char* what);
  Ints ints(const char* what);
  at::ScalarType dtype();
  c10::Device device();
  Ints words(const char* what);  // ints, and floats by their bits
  std::string text(const char* what);
  std::size_t index(std::size_t count, const char* what);  // into a table of `count` rows
  PyObject* object();                                       // borrowed

  Builder& builder;

 private:
  std::vector<PyObject*> fields_;
  std::size_t next_ = 1;
};

// Same number of sizes and strides, none negative where known.
void check_shape(const Ints& sizes, const Ints& strides);

}  // namespace dyncomp::executor
