// Where a backward ends: what no gradient leads to is not run.
//
//   a, b = compiled(x, w); a.backward()     w is behind the node of a too, but nothing of a comes from it: no hook of w runs
#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "executor/autograd.h"

namespace dyncomp::executor {

// Eager does not come to what no gradient leads to, so hooks there do not run; the engine would hand them no gradient at all. Known
// where this node is the root, so that all other nodes are known: then the edges to what lies below them alone are not there this time.
void CompiledBackward::leave_out_unreached(const std::vector<bool>& pattern, const torch::autograd::variable_list& results) {
  const std::unordered_set<Node*>* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (nodes == nullptr || nodes->count(this) != 0 || results.size() != num_outputs()) {
    return;
  }
  std::unordered_set<std::size_t> unreached;
  for (std::size_t i = 0; i < results.size(); ++i) {
    bool reached = pattern == training_->likely &&
                   std::find(training_->leaf_order.begin(), training_->leaf_order.end(), static_cast<int>(i)) != training_->leaf_order.end();
    if (!results[i].defined() && next_edge(i).is_valid() && !reached) {
      unreached.insert(i);
    }
  }
  if (unreached.empty()) {
    return;
  }
  auto enter = [](Node* node, std::unordered_set<Node*>& found) {
    std::vector<Node*> stack{node};
    while (!stack.empty()) {
      Node* next = stack.back();
      stack.pop_back();
      if (next != nullptr && found.insert(next).second) {
        for (const auto& edge : next->next_edges()) {
          stack.push_back(edge.function.get());
        }
      }
    }
  };
  std::unordered_set<Node*> below, otherwise;  // what unreached edges lead to; what other edges lead to
  for (std::size_t i : unreached) {
    enter(next_edge(i).function.get(), below);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (unreached.count(i) == 0) {
      enter(next_edge(i).function.get(), otherwise);
    }
  }
  bool apart = std::none_of(below.begin(), below.end(), [&](Node* node) { return otherwise.count(node) != 0; });
  if (!apart) {
    return;  // nodes below count who is to come
  }
  for (std::size_t i : unreached) {
    left_out_.emplace_back(i, std::exchange(next_edges_.at(i), {}));
  }
  torch::autograd::Engine::get_default_engine().queue_callback([self = getptr()] {
    auto* node = static_cast<CompiledBackward*>(self.get());
    for (auto& [place, edge] : std::exchange(node->left_out_, {})) {
      node->next_edges_.at(place) = std::move(edge);
    }
  });
}

}  // namespace dyncomp::executor
