// Walks an autograd graph in the order of eager's engine, and what the files that look at such graphs share.
//
//   loss = (x * w).sum()      ->      SumBackward0, MulBackward0, AccumulateGrad of x, AccumulateGrad of w
//
// The engine runs the ready node with the greatest sequence number, from a binary heap; so does this walk, and a structure that
// is equal to another one stands for the same order, ties included.
#pragma once

#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "executor/autograd.h"

namespace dyncomp::executor {

// Why a graph is left to eager's engine.
struct Refusal {
  std::string reason;
};

// One node of a walk.
struct Visit {
  CompiledBackward::Ref node;
  char kind;  // 'a' accumulates into a leaf, 'c' compiled code, 'r' passes on to a leaf, 'p' a Python function, 'g' any other
};

using Visits = std::vector<Visit>;

class Walk {
 public:
  using Node = torch::autograd::Node;
  using Edge = torch::autograd::Edge;

  // `wanted`: the leaves that are asked for; none of them: all. Both must outlive the walk.
  Walk(std::vector<Edge> roots, std::vector<Node*> wanted) : roots_(std::move(roots)), wanted_(std::move(wanted)) {}

  void run();

  const std::vector<Node*>& order() const { return order_; }
  const CompiledBackward::Ref& owner(Node* node) const { return owners_.at(node); }
  const std::vector<Edge>& roots() const { return roots_; }

  // Where an edge leads: a position in the order, or -1.
  int position(const Edge& edge) const { return edge.function ? found_.at(edge.function.get()).position : -1; }

 private:
  struct Found {
    int missing = 0;     // how many results it still waits for
    bool needed = true;  // an asked-for leaf lies below
    int position = -1;   // in the order of the run
  };

  void discover();
  void finish(Node* node);

  std::vector<Edge> roots_;
  std::vector<Node*> wanted_;
  std::unordered_map<Node*, Found> found_;
  std::unordered_map<Node*, CompiledBackward::Ref> owners_;
  std::vector<Node*> order_;
};

// What graphs are told apart by.
class Key {
 public:
  template <typename T>
  void add(const T& value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    text_.append(bytes, sizeof(T));
  }
  void add(const std::string& text) { text_ += text; }
  PyObject* object() const { return PyBytes_FromStringAndSize(text_.data(), static_cast<Py_ssize_t>(text_.size())); }

 private:
  std::string text_;
};

inline py::object steal(PyObject* object) {
  if (object == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(object);
}

// The nodes in the capsule that a walk returned; throws Python's error.
Visits& visits_of(PyObject* steps);

}  // namespace dyncomp::executor
