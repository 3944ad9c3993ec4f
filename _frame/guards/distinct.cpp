// One pass: objects of groups are entered into a hash table, the others are looked up. No Python code runs.
#include "guards/distinct.h"

#include <algorithm>
#include <bit>

namespace dyncomp {

namespace {

bool bad(PyObject* payload) {
  if (!PyErr_Occurred()) {
    PyErr_Format(PyExc_TypeError, "guard distinct takes (groups, others) with indices of nodes up to its own, not %R", payload);
  }
  return false;
}

bool read_nodes(PyObject* nodes, int32_t position, int32_t group, Distinct& distinct) {
  if (!PyTuple_Check(nodes)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(nodes); ++i) {
    PyObject* item = PyTuple_GET_ITEM(nodes, i);
    Py_ssize_t node = PyLong_Check(item) ? PyLong_AsSsize_t(item) : -1;
    if (node < 0 || node > position) return false;
    distinct.nodes.push_back(static_cast<int32_t>(node));
    distinct.groups.push_back(group);
  }
  return true;
}

size_t hash_of(PyObject* object) {
  uint64_t bits = reinterpret_cast<uintptr_t>(object) >> 4;
  return static_cast<size_t>((bits * UINT64_C(0x9E3779B97F4A7C15)) >> 20);
}

}  // namespace

std::unique_ptr<Distinct> distinct_build(PyObject* payload, int32_t position) {
  auto distinct = std::make_unique<Distinct>();
  bool good = PyTuple_Check(payload) && PyTuple_GET_SIZE(payload) == 2 && PyTuple_Check(PyTuple_GET_ITEM(payload, 0));
  PyObject* groups = good ? PyTuple_GET_ITEM(payload, 0) : nullptr;
  for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(groups); ++i) {
    good = read_nodes(PyTuple_GET_ITEM(groups, i), position, static_cast<int32_t>(i), *distinct);
  }
  if (!good || !read_nodes(PyTuple_GET_ITEM(payload, 1), position, -1, *distinct)) {
    bad(payload);
    return nullptr;
  }
  distinct->table.resize(std::bit_ceil(2 * distinct->nodes.size() + 1));
  return distinct;
}

bool distinct_holds(const Distinct& distinct, PyObject* const* values, int32_t* first, int32_t* second) {
  std::vector<int32_t>& table = distinct.table;
  std::fill(table.begin(), table.end(), -1);
  size_t mask = table.size() - 1;
  for (size_t i = 0; i < distinct.nodes.size(); ++i) {
    PyObject* object = values[distinct.nodes[i]];
    size_t place = hash_of(object) & mask;
    while (table[place] >= 0 && values[distinct.nodes[static_cast<size_t>(table[place])]] != object) {
      place = (place + 1) & mask;
    }
    if (table[place] < 0) {
      if (distinct.groups[i] >= 0) table[place] = static_cast<int32_t>(i);
    } else if (size_t known = static_cast<size_t>(table[place]); distinct.groups[known] != distinct.groups[i]) {
      if (first != nullptr) *first = distinct.nodes[known];
      if (second != nullptr) *second = distinct.nodes[i];
      return false;
    }
  }
  return true;
}

}  // namespace dyncomp
