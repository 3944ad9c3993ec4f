// A compiled function that autograd goes through: what it computes, what it keeps, and how its gradient is computed.
#pragma once

#include <Python.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "executor/bits.h"
#include "executor/inputs.h"

namespace dyncomp::executor {

// A strong reference that may be dropped by any thread.
class SharedObject {
 public:
  SharedObject() = default;
  explicit SharedObject(PyObject* borrowed) : object_(Py_XNewRef(borrowed)) {}
  SharedObject(SharedObject&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(SharedObject other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~SharedObject();
  PyObject* get() const { return object_; }

 private:
  PyObject* object_ = nullptr;
};

// A view operation: what is called after the tensor that it looks at, and which of several results is meant (-1: the only one).
struct ViewCall {
  c10::OperatorHandle op;
  std::vector<c10::IValue> rest;
  int item;
  // Numbers among them that vary: which argument, which element of it if it is a list (else -1), the raw output that is the number.
  struct Number {
    int argument, element, raw;
  };
  std::vector<Number> numbers;
};

// How one of the user's outputs follows from raw outputs and inputs.
struct TrainingOutput {
  enum class Kind { kRaw, kInput, kOutput, kConst, kRawView, kInputView, kOutputView } kind;
  int index = 0;
  PyObject* value = nullptr;  // of a constant; kept by Training::kept
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  // from the base's own first element
  bool differentiable = false;
  // Numbers that vary, by place (the sizes, then the strides, then the offset): the raw output that is the number, or -1.
  // Empty where none does.
  std::vector<int> from;
  std::vector<ViewCall> calls;  // the program's own views from the base, where they are known: autograd's formulas are theirs then
  bool stale = false;  // the memory was written since: as of then, autograd makes a node of its own for the view
  int first = -1;  // the first output that is another result of the last call, or this one if it is the first of several; else -1
};

// How a gradient is laid out: by strides, or, where sizes vary, densely with these dimensions from the outermost to the innermost.
struct Layout {
  std::vector<int64_t> strides, order;
  bool ordered = false;
};

// A backward for the case that gradients come in exactly where `pattern` says and those of `wanted` (positions in `requiring`) are
// asked for, while autocast is in one state.
struct Backward {
  std::vector<bool> pattern;
  Bits wanted;
  uint64_t autocast;
  std::vector<Layout> layouts;  // one a gradient that comes in
  std::vector<bool> read;       // by saved value; what is not read may have been written since
  SharedObject call;                          // (*saved, *gradients) -> gradient or None for each of `requiring`
};

struct SavedValue {
  bool input;  // an input (a tensor or a number), else a value that the forward returned
  int index;
};

// A node of eager's history that keeps values, or several alike: which differentiable outputs lead to it, and to which of
// `requiring` it leads. A backward that goes through it uses it up.
struct Keeper {
  Bits outputs, inputs;
};

// An input or a raw output that eager's history keeps something of.
struct Seen {
  bool input;
  int index;
  bool counted;  // its version counter is looked at after the call too: nothing else keeps the tensor
  bool sized;    // its sizes at the call are what is told of it
};

// What a node of eager's history keeps of such a one: a backward that goes through the node raises if it was written since.
struct Watched {
  int seen;  // in `Training::seen`
  Keeper reader;
  std::vector<int64_t> sizes;
  std::string type;    // "torch.FloatTensor"
  std::string origin;  // "output 0 of Exp"; empty for a leaf
  bool itself;         // the very input is kept: what made it is told by its history
};

// Where the gradient of an input goes. One that is a view and that the call writes may have several: its node of before the call, its base
// at once (what is made of another view of that, or of what was there before a write, does not pass by the input), its node of after it.
enum class Side : char { kOwn, kBase, kAfter };

// When an input is written through itself, and not through another view of it.
enum class Itself : char { kNever, kEarlier, kLast };

// A view whose history may be looked at: an output, or an input that the call has written; which result of its node (-1: its own).
struct Shown {
  bool input;
  int index, item;
};

// Inputs (positions in `requiring`) that are reached from the same differentiable outputs.
struct Exit {
  std::vector<int> inputs, outputs;
};

struct Training {
  int inputs = 0, raw = 0;
  bool draws = false;                // the forward moves the default generator
  bool writes = false;               // the forward writes an input
  std::vector<int> requiring;        // inputs that get a gradient; those with several sides more than once
  std::vector<Side> sides;           // by position in `requiring`
  std::vector<int> viewed;           // inputs that the call writes, in order, which this program takes for views; the others are none
  std::vector<int> may_be_viewed;    // inputs that could be such
  std::vector<int> differentiable;   // raw outputs that a gradient comes in for
  std::vector<SavedValue> saved;
  std::vector<bool> written;         // inputs that the forward writes
  std::vector<int> rebased;          // by raw output: the input whose new value and history it is, or -1
  bool rebases = false;
  std::vector<uint32_t> times;       // by input that is such a one: how often eager writes it, as its version counter tells
  std::vector<bool> moved;           // by input: it is such a one
  std::vector<Itself> itself;        // by such an input
  bool sized = false;                // sizes vary, and backwards read them off all that they are given
  std::vector<bool> held;            // by input: `rerun` needs it, so it lives as long as the call
  std::vector<bool> originals;       // by input: `rerun` needs its value before the call wrote it
  bool copies = false;               // there are such
  bool repeatable = false;           // running it again on the inputs as they are afterwards gives the same
  std::vector<Seen> seen;
  std::vector<Watched> watched;      // in the order in which eager's backward comes to it
  std::vector<Bits> reach;           // by differentiable raw output: the positions in `requiring` that its history leads to
  std::vector<Exit> exits;           // the inputs that are reached at all; what eager comes to first is first
  std::vector<int> output_order;     // the differentiable raw outputs, and of `shown` the outputs, by their numbers as ends; oldest first
  // Where histories may be looked at: the differentiable raw outputs are such ends, and then these. The new value of an input in `viewed`
  // is the part of the base that it looks at.
  std::vector<Shown> shown;
  // By end: the ends that its history comes to first. In eager a gradient passes by them, where hooks and `autograd.grad` may see it.
  std::vector<std::vector<int>> through;
  uint64_t depth = 0;                // how many nodes of eager's may lie between a result and the inputs
  bool single = false;               // there is one differentiable raw output, and no other end behind it
  std::vector<Keeper> keepers;
  std::vector<std::vector<Keeper>> readers;  // by saved value: for gradients of which outputs and inputs a backward reads it
  std::vector<bool> last_needs;      // by saved value: it is read although all keepers are used up
  std::vector<bool> likely;          // by differentiable raw output: the likely backward has a gradient for it
  std::vector<int> leaf_order;       // positions in `requiring` of the leaves, as eager's likely backward comes to them
  std::vector<TrainingOutput> outputs;
  std::size_t returned = 0;          // so many of them are the user's; the others are views that these are made of
  SharedObject forward;              // (*inputs) -> (*raw outputs, *values to keep)
  SharedObject original;             // (*inputs) -> outputs, for inputs that share memory with a written one
  SharedObject prepare;              // (pattern) -> (call, strides | ("order", dimensions) for each gradient), or None: use `rerun`
  SharedObject rerun;                // (inputs, gradients, generator state, create_graph, retain_graph, wanted, what is kept) -> gradients
  SharedObject cut;                  // (inputs, generator state, what is kept) -> (to results, to inputs), see inner_results.cpp
  SharedObject for_views;            // (inputs in `viewed`) -> what runs then: the same program for such, as a plan, or the original
  SharedObject kept;
  // Guarded by the interpreter's lock; a new one leaves the others in place.
  mutable std::deque<Backward> backwards;
  mutable std::deque<std::pair<std::vector<int>, SharedObject>> variants;  // by `viewed`, what `for_views` gave
};

// What a call was given, or what its forward returned: tensors, undefined where there is a number.
struct Values {
  std::vector<at::Tensor> tensors;
  std::vector<PlacedNumber> numbers;
};

using TrainingPtr = std::shared_ptr<const Training>;

// A new reference to the Python type `TrainingPlan`, or nullptr with an exception set.
PyObject* make_training_plan_type();

}  // namespace dyncomp::executor
