// Compiles the Python description of a guard tree. Every mistake in it is an exception here, never at a call.
#include "guards/check.h"
#include "guards/constant.h"
#include "guards/tree.h"

namespace dyncomp {
namespace {

enum class Wants : uint8_t { none, index, text, object, weak, key, c_callable };

struct AccessRow {
  const char* name;
  Access access;
  Wants arg;
  bool root;
};

constexpr AccessRow kAccesses[] = {
    {"local", Access::local, Wants::index, true},
    {"func", Access::func, Wants::none, true},
    {"const", Access::constant, Wants::object, true},
    {"weak", Access::weak, Wants::weak, true},
    {"cell", Access::cell, Wants::index, false},
    {"cell_contents", Access::cell_contents, Wants::none, false},
    {"func_globals", Access::func_globals, Wants::none, false},
    {"func_code", Access::func_code, Wants::none, false},
    {"func_default", Access::func_default, Wants::index, false},
    {"func_kwdefault", Access::func_kwdefault, Wants::text, false},
    {"method_self", Access::method_self, Wants::none, false},
    {"method_func", Access::method_func, Wants::none, false},
    {"instance_dict", Access::instance_dict, Wants::none, false},
    {"dict_item", Access::dict_item, Wants::key, false},
    {"dict_key_at", Access::dict_key_at, Wants::index, false},
    {"list_item", Access::list_item, Wants::index, false},
    {"tuple_item", Access::tuple_item, Wants::index, false},
    {"type", Access::type, Wants::none, false},
    {"class_attr", Access::class_attr, Wants::text, false},
    {"slot_attr", Access::slot_attr, Wants::text, false},
    {"call", Access::call, Wants::c_callable, false},
};

enum class Takes : uint8_t { object, type, weak, constant, length, keys, spec, attributes, nothing, boolean, node, range, program, item, dicts, groups };

struct KindRow {
  const char* name;
  Kind kind;
  Takes payload;
};

constexpr KindRow kKinds[] = {
    {"type", Kind::type, Takes::type},
    {"id", Kind::id, Takes::weak},
    {"equals", Kind::equals, Takes::constant},
    {"len", Kind::len, Takes::length},
    {"dict_keys", Kind::dict_keys, Takes::keys},
    {"tensor", Kind::tensor, Takes::spec},
    {"class_attrs", Kind::class_attrs, Takes::attributes},
    {"type_attrs", Kind::type_attrs, Takes::attributes},
    {"no_item", Kind::no_item, Takes::keys},
    {"empty", Kind::empty, Takes::nothing},
    {"empty_items", Kind::empty_items, Takes::dicts},
    {"truth", Kind::truth, Takes::boolean},
    {"same_as", Kind::same_as, Takes::node},
    {"not_same_as", Kind::not_same_as, Takes::node},
    {"distinct", Kind::distinct, Takes::groups},
    {"item_if_any", Kind::item_if_any, Takes::item},
    {"range", Kind::range, Takes::range},
    {"int_program", Kind::int_program, Takes::program},
};

template <typename Row, size_t count>
const Row* find_row(const Row (&rows)[count], PyObject* name, const char* what) {
  for (const Row& row : rows) {
    if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, row.name) == 0) return &row;
  }
  PyErr_Format(PyExc_ValueError, "unknown guard %s %R", what, name);
  return nullptr;
}

bool wrong(const char* name, const char* wanted, PyObject* got) {
  PyErr_Format(PyExc_TypeError, "guard %s takes %s, not %R", name, wanted, got);
  return false;
}

bool read_index(const char* name, PyObject* object, Py_ssize_t* index) {
  if (!PyLong_Check(object)) return wrong(name, "an index", object);
  *index = PyLong_AsSsize_t(object);
  if (*index == -1 && PyErr_Occurred()) return false;
  return *index >= 0 || wrong(name, "an index from 0 up", object);
}

// A weak reference where the object allows one, else the object itself.
bool hold_weakly(PyObject* object, Ref* held, bool* weak) {
  *held = Ref::steal(PyWeakref_NewRef(object, nullptr));
  *weak = static_cast<bool>(*held);
  if (*weak) return true;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
  PyErr_Clear();
  *held = Ref::share(object);
  return true;
}

bool intern_text(PyObject* text, Ref* held) {
  PyObject* interned = Py_NewRef(text);
  PyUnicode_InternInPlace(&interned);
  *held = Ref::steal(interned);
  return true;
}

// ---- nodes --------------------------------------------------------------------------------------------------------

bool read_arg(const AccessRow& row, PyObject* arg, Node& node) {
  switch (row.arg) {
    case Wants::none: return true;
    case Wants::index: return read_index(row.name, arg, &node.index);
    case Wants::text:
      if (!PyUnicode_CheckExact(arg)) return wrong(row.name, "a str", arg);
      return intern_text(arg, &node.arg);
    case Wants::key:
      if (PyUnicode_CheckExact(arg)) return intern_text(arg, &node.arg);
      if (PyObject_Hash(arg) == -1) return false;
      node.arg = Ref::share(arg);
      return true;
    case Wants::object: node.arg = Ref::share(arg); return true;
    case Wants::weak: node.arg = Ref::steal(PyWeakref_NewRef(arg, nullptr)); return static_cast<bool>(node.arg);
    case Wants::c_callable:
      if (PyFunction_Check(arg) || PyMethod_Check(arg) || !PyCallable_Check(arg)) {
        return wrong(row.name, "a function written in C", arg);
      }
      node.arg = Ref::share(arg);
      return true;
  }
  return false;
}

bool read_node(PyObject* tuple, int32_t position, Node& node, PyObject** checks) {
  int parent;
  PyObject *name, *arg;
  if (!PyTuple_Check(tuple)) return wrong("node", "a tuple (parent, access, arg, checks)", tuple);
  if (!PyArg_ParseTuple(tuple, "iOOO:guard node", &parent, &name, &arg, checks)) return false;
  const AccessRow* row = find_row(kAccesses, name, "access");
  if (row == nullptr) return false;
  if (row->root ? parent != -1 : parent < 0 || parent >= position) {
    PyErr_Format(PyExc_ValueError, "guard node %d (%s): bad parent %d", position, row->name, parent);
    return false;
  }
  node.access = row->access;
  node.parent = parent;
  return read_arg(*row, arg, node);
}

// ---- checks -------------------------------------------------------------------------------------------------------

bool is_attribute_pairs(PyObject* payload) {
  if (!PyTuple_Check(payload)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(payload); ++i) {
    PyObject* pair = PyTuple_GET_ITEM(payload, i);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyUnicode_CheckExact(PyTuple_GET_ITEM(pair, 0))) {
      return false;
    }
  }
  return true;
}

bool read_range(const KindRow& row, PyObject* payload, Check& check) {
  if (!PyTuple_Check(payload) || PyTuple_GET_SIZE(payload) != 2) return wrong(row.name, "(low, high)", payload);
  PyObject* high = PyTuple_GET_ITEM(payload, 1);
  check.low = PyLong_AsSsize_t(PyTuple_GET_ITEM(payload, 0));
  if (check.low == -1 && PyErr_Occurred()) return false;
  check.unbounded = high == Py_None;
  if (!check.unbounded) check.high = PyLong_AsSsize_t(high);
  return check.high != -1 || !PyErr_Occurred();
}

// A set pays from a few keys on.
bool read_keys(const KindRow& row, PyObject* payload, Check& check) {
  constexpr Py_ssize_t kFew = 4;
  if (!PyTuple_Check(payload)) return wrong(row.name, "a tuple of keys", payload);
  if (row.kind != Kind::no_item || PyTuple_GET_SIZE(payload) <= kFew) return true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(payload); ++i) {
    if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(payload, i))) return true;
  }
  check.key_set = Ref::steal(PyFrozenSet_New(payload));
  return static_cast<bool>(check.key_set);
}

bool read_dicts(const KindRow& row, PyObject* payload, Check& check) {
  constexpr const char* kWanted = "((str, class of dicts), ...)";
  if (!PyTuple_Check(payload)) return wrong(row.name, kWanted, payload);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(payload); ++i) {
    PyObject* pair = PyTuple_GET_ITEM(payload, i);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) return wrong(row.name, kWanted, payload);
    PyObject* type = PyTuple_GET_ITEM(pair, 1);
    if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(pair, 0)) || !PyType_Check(type) ||
        !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), &PyDict_Type)) {
      return wrong(row.name, kWanted, payload);
    }
  }
  check.found = std::make_unique<PyObject*[]>(static_cast<size_t>(PyTuple_GET_SIZE(payload)));
  return true;
}

// The tree's guard for this kind of tensor. Layers repeat within a model, so a look at the last few finds most.
const TensorGuard* shared_tensor_guard(GuardTree* tree, PyObject* spec) {
  constexpr size_t kLookBack = 32;
  TensorGuardPointer made = tensor_guard(spec);
  if (made == nullptr) return nullptr;
  std::vector<TensorGuardPointer>& known = *tree->tensors;
  for (size_t back = 1; back <= kLookBack && back <= known.size(); ++back) {
    if (*known[known.size() - back] == *made) return known[known.size() - back].get();
  }
  known.push_back(std::move(made));
  return known.back().get();
}

bool read_payload(GuardTree* tree, const KindRow& row, PyObject* payload, int32_t position, Check& check) {
  check.object = Ref::share(payload);
  switch (row.payload) {
    case Takes::object: return true;
    case Takes::nothing: return true;
    case Takes::type: return PyType_Check(payload) || wrong(row.name, "a class", payload);
    case Takes::weak: return hold_weakly(payload, &check.object, &check.weak);
    case Takes::constant: return is_constant(payload) || wrong(row.name, "a constant", payload);
    case Takes::length: return read_index(row.name, payload, &check.low);
    case Takes::keys: return read_keys(row, payload, check);
    case Takes::spec: check.tensor = shared_tensor_guard(tree, payload); return check.tensor != nullptr;
    case Takes::attributes: return is_attribute_pairs(payload) || wrong(row.name, "((name, object), ...)", payload);
    case Takes::boolean: check.low = payload == Py_True; return PyBool_Check(payload) || wrong(row.name, "a bool", payload);
    case Takes::node:
      if (!read_index(row.name, payload, &check.low)) return false;
      return check.low < position || wrong(row.name, "the index of an earlier node", payload);
    case Takes::item:
      return (PyTuple_Check(payload) && PyTuple_GET_SIZE(payload) == 2 && is_constant(PyTuple_GET_ITEM(payload, 0)) &&
              is_constant(PyTuple_GET_ITEM(payload, 1))) ||
             wrong(row.name, "(key, constant)", payload);
    case Takes::dicts: return read_dicts(row, payload, check);
    case Takes::range: return read_range(row, payload, check);
    case Takes::groups:
      tree->distincts->push_back(distinct_build(payload, position));
      check.distinct = tree->distincts->back().get();
      return check.distinct != nullptr;
    case Takes::program: check.program = program_build(payload, position); return check.program != nullptr;
  }
  return false;
}

bool read_checks(GuardTree* tree, PyObject* checks, int32_t position) {
  Ref sequence = Ref::steal(PySequence_Fast(checks, "the checks of a guard node must be a sequence"));
  if (!sequence) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); ++i) {
    PyObject* pair = PySequence_Fast_GET_ITEM(sequence.get(), i);
    PyObject *name, *payload;
    if (!PyTuple_Check(pair)) return wrong("check", "a tuple (kind, payload)", pair);
    if (!PyArg_ParseTuple(pair, "OO:guard check", &name, &payload)) return false;
    const KindRow* row = find_row(kKinds, name, "check");
    if (row == nullptr) return false;
    Check check{.kind = row->kind};
    if (!read_payload(tree, *row, payload, position, check)) return false;
    if (check.kind == Kind::tensor) tree->precision |= !check.tensor->on_cpu();
    tree->checks->push_back(std::move(check));
  }
  return true;
}

bool read_nodes(GuardTree* tree, PyObject* nodes) {
  Ref sequence = Ref::steal(PySequence_Fast(nodes, "guard nodes must be a sequence"));
  if (!sequence) return false;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence.get());
  tree->nodes->reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    Node node{};
    PyObject* checks;
    if (!read_node(PySequence_Fast_GET_ITEM(sequence.get(), i), i, node, &checks)) return false;
    node.first_check = static_cast<uint32_t>(tree->checks->size());
    if (!read_checks(tree, checks, i)) return false;
    node.end_check = static_cast<uint32_t>(tree->checks->size());
    const Check* first = tree->checks->data() + node.first_check;
    if (node.end_check - node.first_check == 1 && first->kind == Kind::tensor && node.access != Access::class_attr) {
      node.sole_tensor = true;
      node.tensor = first->tensor;
    }
    tree->holds |= node.access == Access::call || node.access == Access::slot_attr;
    tree->nodes->push_back(std::move(node));
  }
  return true;
}

bool read_captures(GuardTree* tree, PyObject* captures) {
  Ref sequence = Ref::steal(PySequence_Fast(captures, "guard captures must be a sequence"));
  if (!sequence) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); ++i) {
    Py_ssize_t node;
    PyObject* item = PySequence_Fast_GET_ITEM(sequence.get(), i);
    if (!read_index("captures", item, &node)) return false;
    if (node >= static_cast<Py_ssize_t>(tree->nodes->size())) return wrong("captures", "indices of nodes", item);
    tree->captures->push_back(static_cast<int32_t>(node));
  }
  return true;
}

}  // namespace

bool tree_build(GuardTree* tree, PyObject* nodes, PyObject* captures, PyObject* state) {
  if (!read_nodes(tree, nodes) || !read_captures(tree, captures)) return false;
  if (state == Py_None) return true;
  *tree->state = state_parse(state);
  return static_cast<bool>(*tree->state);
}

const char* access_name(Access access) {
  for (const AccessRow& row : kAccesses) {
    if (row.access == access) return row.name;
  }
  return "?";
}

const char* kind_name(Kind kind) {
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return row.name;
  }
  return "?";
}

}  // namespace dyncomp
