// A compiled guard tree. Python name: `_core.GuardTree`.
//
// Input:  nodes [(parent, access, arg, checks)], captures [node index], state (see `state.h`); plain Python data.
// Output: a flat program. Each node loads one value from its parent's and checks it; the first failure ends the match.
//         Nothing on the way runs Python code, except `call` and `slot_attr` on C functions that have no effects.
#pragma once
#include <Python.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "guards/distinct.h"
#include "guards/program.h"
#include "guards/state.h"
#include "guards/tensor.h"
#include "ref.h"

namespace dyncomp {

enum class Access : uint8_t {
  local, func, constant, weak, cell, cell_contents, func_globals, func_code, func_default, func_kwdefault, method_self,
  method_func, instance_dict, dict_item, dict_key_at, list_item, tuple_item, type, class_attr, slot_attr, call,
};

enum class Kind : uint8_t {
  type, id, equals, len, dict_keys, tensor, class_attrs, no_item, empty, truth, same_as, not_same_as, range,
  int_program, item_if_any, empty_items, distinct, type_attrs,
};

// A call walks nodes and checks in order: each fills one cache line.
struct alignas(64) Node {
  Access access;
  bool sole_tensor = false;  // its one check is `tensor`: what most nodes of a module are
  uint16_t hint_misses = 0;  // dict_item: the entry is searched anew at misses 1, 2, 4, 8, ...
  int32_t parent;            // index of an earlier node; -1 for a root
  uint32_t first_check, end_check;
  Py_ssize_t index = 0;  // slot, position; dict_item: the entry slot where the key was
  Ref arg;               // key, name, object, callable; a weak reference for `weak`

  // What made the last look-up quick; never trusted without a comparison.
  Ref hint_key;                   // dict_item: the very key object found in the dict
  union {
    PyObject* hint_type = nullptr;  // class_attr: type (compared only)
    const TensorGuard* tensor;      // any other access, if `sole_tensor`; the tree's
  };
  uint64_t hint_version = 0;      // of that type, or of the dict ...
  PyObject* hint_value = nullptr;  // ... and what the look-up gave: valid as long as the version is
};
static_assert(sizeof(Node) == 64);

struct alignas(64) Check {
  Kind kind;
  bool unbounded = false;  // range without an upper end
  bool weak = false;       // `object` is a weak reference
  uint64_t hint_version = 0;  // class_attrs, type_attrs, no_item, empty_items: version of the type or dict that passed last
  Py_ssize_t low = 0;         // len, truth, node index, range
  union {
    Py_ssize_t high = 0;    // range
    PyObject* hint_type;    // class_attrs, type_attrs: the type that passed last (compared only)
    const TensorGuard* tensor;  // tensor: the tree's
    const Distinct* distinct;   // distinct: the tree's
  };
  Ref object;   // payload as given; a weak reference for `id` where possible
  Ref key_set;  // no_item with many keys: they as a set, if all are exact strings
  std::unique_ptr<PyObject*[]> found;  // empty_items: the values of the dict at that version (not held)
  std::unique_ptr<Program> program;
};
static_assert(sizeof(Check) == 64);

struct GuardTree {
  PyObject_HEAD
  std::vector<Node>* nodes;
  std::vector<Check>* checks;
  std::vector<int32_t>* captures;
  std::vector<TensorGuardPointer>* tensors;  // each kind of tensor once, however many nodes ask for it
  std::vector<std::unique_ptr<Distinct>>* distincts;  // of the checks
  StatePointer* state;  // nullptr inside: not checked
  bool precision;                 // some tensor is on a device where compiled code may have fixed the matmul precision
  bool holds;                     // some node makes new objects, so every value is held during a match
  PyObject* weakrefs;
};

extern PyTypeObject GuardTreeType;

// The captured values: borrowed until `hold`, or held from the start where nobody else may hold them.
class Captures {
 public:
  Captures() = default;
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;
  ~Captures() {
    drop();
    if (values_ != small_) PyMem_Free(values_);
  }
  bool reserve(size_t count) {
    if (count >= kSmall) {
      values_ = static_cast<PyObject**>(PyMem_Malloc((count + 1) * sizeof(PyObject*)));
      if (values_ == nullptr) {
        values_ = small_;
        return false;
      }
    }
    return true;
  }
  void push(PyObject* borrowed) { values_[++count_] = borrowed; }
  void hold() {
    if (held_) return;
    held_ = true;
    for (size_t i = 0; i < count_; ++i) Py_INCREF(values_[i + 1]);
  }
  // The callee holds them now.
  void drop() {
    if (!held_) return;
    held_ = false;
    for (size_t i = 0; i < count_; ++i) Py_DECREF(values_[i + 1]);
  }
  // For a vector call with PY_VECTORCALL_ARGUMENTS_OFFSET: the slot in front is free for the callee.
  PyObject** data() { return values_ + 1; }
  size_t count() const { return count_; }

 private:
  static constexpr size_t kSmall = 128;
  PyObject* small_[kSmall];
  PyObject** values_ = small_;
  size_t count_ = 0;
  bool held_ = false;
};

// True if all guards hold; then `captures` is filled, not held unless some values are new objects: whoever runs code that
// may drop them calls `hold` first. Never leaves an exception.
bool tree_match(GuardTree* tree, PyFunctionObject* function, PyObject* const* args, Captures& captures);
// None, or (node, kind, text) of the first guard that fails: a new reference; nullptr with an exception.
PyObject* tree_explain(GuardTree* tree, PyFunctionObject* function, PyObject* const* args);
// Fills a tree from the Python data; false with an exception.
bool tree_build(GuardTree* tree, PyObject* nodes, PyObject* captures, PyObject* state);

const char* access_name(Access access);
const char* kind_name(Kind kind);

}  // namespace dyncomp
