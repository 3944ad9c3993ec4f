#include "compat.h"  // first: it opens the interpreter's internals before Python.h is read

#include "guards/evaluation.h"

#include "guards/access.h"
#include "guards/check.h"
#include "guards/constant.h"

namespace dyncomp {
namespace {

PyObject* weak_target(PyObject* reference) {  // borrowed
  PyObject* object = reinterpret_cast<PyWeakReference*>(reference)->wr_object;
  return object == Py_None ? nullptr : object;
}

bool makes_object(Access access) { return access == Access::slot_attr || access == Access::call; }

}  // namespace

Evaluation::~Evaluation() {
  if (tree_->holds) {
    for (int32_t i = 0; i < loaded_; ++i) Py_DECREF(values_[i]);
  }
  if (values_ != small_) PyMem_Free(values_);
}

PyObject* Evaluation::load(Node& node) {
  if (node.parent >= 0) {
    PyObject* parent = values_[node.parent];
    if (node.access == Access::dict_item && PyDict_Check(parent)) {
      uint64_t version = compat::dict_version(parent);
      return version != 0 && version == node.hint_version ? node.hint_value : access_dict_item(node, parent);
    }
    return load_from(node, parent);
  }
  switch (node.access) {
    case Access::local: return args_[node.index];
    case Access::func: return reinterpret_cast<PyObject*>(function_);
    case Access::constant: return node.arg.get();
    case Access::weak: return weak_target(node.arg.get());
    default: return nullptr;
  }
}

PyObject* Evaluation::load_from(Node& node, PyObject* parent) {
  switch (node.access) {
    case Access::instance_dict: return access_instance_dict(parent);
    case Access::list_item:
      return PyList_Check(parent) && node.index < PyList_GET_SIZE(parent) ? PyList_GET_ITEM(parent, node.index) : nullptr;
    case Access::tuple_item:
      return PyTuple_Check(parent) && node.index < PyTuple_GET_SIZE(parent) ? PyTuple_GET_ITEM(parent, node.index)
                                                                            : nullptr;
    case Access::type: return reinterpret_cast<PyObject*>(Py_TYPE(parent));
    case Access::class_attr: return access_class_attr(node, parent);
    case Access::dict_key_at: return access_key_at(parent, node.index);
    case Access::cell_contents: return access_cell_contents(parent);
    case Access::method_self: return PyMethod_Check(parent) ? PyMethod_GET_SELF(parent) : nullptr;
    case Access::method_func: return PyMethod_Check(parent) ? PyMethod_GET_FUNCTION(parent) : nullptr;
    case Access::slot_attr: return make_slot_attr(node, parent);
    case Access::call: return make_call(node, parent);
    default: return access_function(node.access, node, parent);
  }
}

bool Evaluation::holds(Check& check, PyObject* value) {
  switch (check.kind) {
    case Kind::type: return reinterpret_cast<PyObject*>(Py_TYPE(value)) == check.object.get();
    case Kind::id:
      return value == (check.weak ? weak_target(check.object.get()) : check.object.get());
    case Kind::equals: return same_constant(check.object.get(), value);
    case Kind::tensor: return tensor_holds(*check.tensor, value);
    case Kind::empty_items: return check_empty_items(check, value);
    case Kind::class_attrs: return check_attrs(check, Py_TYPE(value));
    case Kind::type_attrs: return PyType_Check(value) && check_attrs(check, reinterpret_cast<PyTypeObject*>(value));
    case Kind::len: return length_of(value) == check.low;
    case Kind::empty: return length_of(value) == 0;
    case Kind::dict_keys: return check_dict_keys(check.object.get(), value);
    case Kind::item_if_any: return check_item_if_any(check, value);
    case Kind::no_item: return check_no_item(check, value);
    case Kind::truth: return truth_of(value) == static_cast<int>(check.low);
    case Kind::same_as: return value == values_[check.low];
    case Kind::not_same_as: return value != values_[check.low];
    case Kind::distinct: return distinct_holds(*check.distinct, values_);
    case Kind::range: return check_range(check, value);
    case Kind::int_program: return program_holds(*check.program, values_);
  }
  return false;
}

bool Evaluation::run() {
  size_t count = tree_->nodes->size();
  if (count > kSmall) {
    values_ = static_cast<PyObject**>(PyMem_Malloc(count * sizeof(PyObject*)));
    if (values_ == nullptr) {
      values_ = small_;
      return false;
    }
  }
  return tree_->holds ? run_nodes<true>() : run_nodes<false>();
}

template <bool holds_values>
bool Evaluation::run_nodes() {
  Node* nodes = tree_->nodes->data();
  Check* checks = tree_->checks->data();
  PyObject** values = values_;
  int32_t count = static_cast<int32_t>(tree_->nodes->size());
  for (int32_t i = 0; i < count; ++i) {
    Node& node = nodes[i];
    PyObject* value = load(node);
    if (value == nullptr) [[unlikely]] {
      node_ = i;
      return false;
    }
    values[i] = value;
    if constexpr (holds_values) {
      if (!makes_object(node.access)) Py_INCREF(value);
      loaded_ = i + 1;
    }
    uint32_t c = node.first_check;
    if (node.sole_tensor) {
      if (tensor_holds(*node.tensor, value)) [[likely]]
        continue;
    } else {
      while (c < node.end_check && holds(checks[c], value)) ++c;
      if (c == node.end_check) [[likely]]
        continue;
    }
    node_ = i;
    check_ = static_cast<int32_t>(c);
    return false;
  }
  return true;
}

bool tree_match(GuardTree* tree, PyFunctionObject* function, PyObject* const* args, Captures& captures) {
  if (*tree->state && !state_holds(**tree->state, tree->precision)) return false;
  Evaluation evaluation(tree, function, args);
  if (!evaluation.run() || !captures.reserve(tree->captures->size())) return false;
  for (int32_t node : *tree->captures) captures.push(evaluation.value(node));
  if (tree->holds) captures.hold();  // the evaluation drops what it made
  return true;
}

}  // namespace dyncomp
