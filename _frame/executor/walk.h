// Walks an autograd graph in the order of eager's engine, and what the files that look at such graphs share.
//
//   loss = (x * w).sum()      ->      SumBackward0, MulBackward0, AccumulateGrad of x, AccumulateGrad of w
//
// The engine runs the ready node with the greatest sequence number, from a binary heap; so does this walk, and a structure that
// is equal to another one stands for the same order, ties included.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "executor/autograd.h"

namespace dyncomp::executor {

// Why a graph is left to eager's engine.
struct Refusal {
  std::string reason;
};

// One node of a walk. The nodes of one call of compiled code are one: its gradients come in at `entries`, by differentiable output, and
// those of `requiring` go on to `edges`.
struct Visit {
  CompiledBackward::Ref node;
  // 'a' accumulates into a leaf, 'c' compiled code, 'r' passes on to a leaf, 'p' a Python function, 'x' is not run: gradients that
  // come to it are what was asked for; 'g' any other
  char kind;
  std::shared_ptr<CompiledCall> call;
  std::vector<torch::autograd::Node*> entries;  // null where no gradient comes in
  std::vector<torch::autograd::Edge> edges;
  Bits wanted;  // places of `requiring` where the walk goes on

  const std::vector<torch::autograd::Edge>& next_edges() const { return call ? edges : node->next_edges(); }
  std::size_t inputs() const { return call ? entries.size() : node->num_inputs(); }
};

using Visits = std::vector<Visit>;

class Walk {
 public:
  using Node = torch::autograd::Node;
  using Edge = torch::autograd::Edge;

  // `wanted`: the nodes that are asked for; none of them: all leaves. Both must outlive the walk. `captures`: asked for are the
  // gradients that come to these nodes, which run only where another one lies below.
  Walk(std::vector<Edge> roots, std::vector<Node*> wanted, bool captures = false)
      : roots_(std::move(roots)), wanted_(std::move(wanted)), captures_(captures) {}

  void run();

  const std::vector<Node*>& order() const { return order_; }
  const CompiledBackward::Ref& owner(Node* node) const { return owners_.at(node); }
  const std::vector<Edge>& roots() const { return roots_; }

  // The order with the nodes of each call of compiled code in one. Throws Refusal.
  Visits visits();
  // Where an edge leads: a position among the visits, or -1, and which of its gradients it is.
  std::pair<int, uint32_t> position(const Edge& edge) const;

 private:
  struct Found {
    int missing = 0;     // how many results it still waits for
    bool needed = true;  // an asked-for node lies below, or it is one
    bool runs = true;    // it is not only asked for
    int position = -1;   // in the order of the run, and then among the visits
  };

  void discover();
  void finish(Node* node);
  Visit visit_call(const CompiledCall& call, Node* node);
  bool passes_by_a_look(const CompiledBackward& entry) const;

  std::vector<Edge> roots_;
  std::vector<Node*> wanted_;
  bool captures_;
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
