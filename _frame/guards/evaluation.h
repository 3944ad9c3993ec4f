// One run of a guard tree over one call's arguments.
#pragma once
#include "guards/tree.h"

namespace dyncomp {

class Evaluation {
 public:
  Evaluation(GuardTree* tree, PyFunctionObject* function, PyObject* const* args)
      : tree_(tree), function_(function), args_(args) {}
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  ~Evaluation();

  // Loads and checks every node. On failure `failed_node()` and `failed_check()` say where.
  bool run();
  PyObject* value(int32_t node) const { return values_[node]; }  // borrowed; nodes before the failed one, and its own
                                                                 // if a check failed
  PyObject* const* values() const { return values_; }
  int32_t failed_node() const { return node_; }
  int32_t failed_check() const { return check_; }  // -1: the access itself failed

 private:
  static constexpr size_t kSmall = 256;

  template <bool holds_values>
  bool run_nodes();
  PyObject* load(Node& node);
  PyObject* load_from(Node& node, PyObject* parent);
  bool holds(Check& check, PyObject* value);

  GuardTree* tree_;
  PyFunctionObject* function_;
  PyObject* const* args_;
  PyObject* small_[kSmall];
  PyObject** values_ = small_;
  int32_t loaded_ = 0;  // nodes whose value is held, when the tree holds values
  int32_t node_ = 0;
  int32_t check_ = -1;
};

}  // namespace dyncomp
