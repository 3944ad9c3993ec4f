#include "executor/walk.h"

#include <algorithm>
#include <queue>

namespace dyncomp::executor {

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

// Nodes of the engine's queue: the greatest sequence number first.
struct Later {
  bool operator()(const Node* a, const Node* b) const { return a->sequence_nr() < b->sequence_nr(); }
};

}  // namespace

void Walk::run() {
  discover();
  // With one root the engine begins with it; with several a node before them hands out their gradients.
  std::priority_queue<Node*, std::vector<Node*>, Later> ready;
  auto arrive = [&](const Edge& edge) {
    Node* node = edge.function.get();
    if (node == nullptr) {
      return;
    }
    Found& found = found_.at(node);
    if (--found.missing == 0 && found.needed) {
      ready.push(node);
      owners_.emplace(node, edge.function);
    }
  };
  for (const Edge& root : roots_) {
    arrive(root);
  }
  while (!ready.empty()) {
    Node* node = ready.top();
    ready.pop();
    found_.at(node).position = static_cast<int>(order_.size());
    order_.push_back(node);
    for (const Edge& edge : node->next_edges()) {
      arrive(edge);
    }
  }
}

// Counts who waits for whom, and whether a wanted leaf lies below.
void Walk::discover() {
  struct Entered {
    Node* node;
    std::size_t next;
  };
  std::vector<Entered> stack;
  auto enter = [&](Node* node) {
    if (node != nullptr && found_.try_emplace(node).second) {
      stack.push_back({node, 0});
    }
  };
  for (const Edge& root : roots_) {
    enter(root.function.get());
    while (!stack.empty()) {
      Node* node = stack.back().node;
      if (stack.back().next < node->next_edges().size()) {
        enter(node->next_edges()[stack.back().next++].function.get());
        continue;
      }
      stack.pop_back();
      finish(node);
    }
  }
  for (const Edge& root : roots_) {
    ++found_.at(root.function.get()).missing;
  }
}

void Walk::finish(Node* node) {
  bool needed = wanted_.empty() || std::find(wanted_.begin(), wanted_.end(), node) != wanted_.end();
  for (const Edge& edge : node->next_edges()) {
    if (edge.function) {
      Found& below = found_.at(edge.function.get());
      ++below.missing;
      needed = needed || below.needed;
    }
  }
  found_.at(node).needed = needed;
}

}  // namespace dyncomp::executor
