#include "executor/walk.h"

#include <algorithm>
#include <queue>
#include <span>

namespace dyncomp::executor {

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

// Nodes of the engine's queue: the greatest sequence number first.
struct Later {
  bool operator()(const Node* a, const Node* b) const { return a->sequence_nr() < b->sequence_nr(); }
};

// What leads into compiled code; one that has been made to follow eager's graph passes on what it is given.
CompiledBackward* entry_of(Node* node) {
  auto* entry = dynamic_cast<CompiledBackward*>(node);
  return entry == nullptr || entry->is_followed() ? nullptr : entry;
}

// Where the gradients go on that the node computes; not the ends that they pass by where somebody looks.
std::span<const Edge> edges_of(Node& node) {
  const auto& edges = node.next_edges();
  const CompiledBackward* entry = entry_of(&node);
  return {edges.data(), edges.size() - (entry == nullptr ? 0 : entry->call()->program().through[entry->place()].size())};
}

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
    for (const Edge& edge : edges_of(*node)) {
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
      if (stack.back().next < edges_of(*node).size()) {
        enter(edges_of(*node)[stack.back().next++].function.get());
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

std::pair<int, uint32_t> Walk::position(const Edge& edge) const {
  if (!edge.function) {
    return {-1, 0};
  }
  auto found = found_.find(edge.function.get());
  auto* entry = found == found_.end() || found->second.runs ? entry_of(edge.function.get()) : nullptr;
  return {found == found_.end() ? -1 : found->second.position, entry != nullptr ? static_cast<uint32_t>(entry->place()) : edge.input_nr};
}

Visits Walk::visits() {
  Visits visits;
  std::unordered_map<const CompiledCall*, int> calls;
  for (Node* node : order_) {
    Found& found = found_.at(node);
    if (!found.runs) {
      found.position = static_cast<int>(visits.size());
      visits.push_back({owners_.at(node), 'x', nullptr, {}, {}, {}});
      continue;
    }
    auto* entry = entry_of(node);
    if (entry != nullptr && passes_by_a_look(*entry)) {
      throw Refusal{"hooks on results that other results of the same compiled code are made of"};
    }
    auto* leaving = dynamic_cast<CompiledGradients*>(node);
    const std::shared_ptr<CompiledCall>* call = entry != nullptr ? &entry->call() : leaving != nullptr ? &leaving->call() : nullptr;
    if (call != nullptr) {
      if (!node->pre_hooks().empty() || !node->post_hooks().empty() || (leaving != nullptr && !node->tensor_pre_hooks().empty())) {
        throw Refusal{"hooks on nodes of compiled code"};
      }
      auto known = calls.find(call->get());
      bool computes = leaving != nullptr || (*call)->program().single;
      if (known != calls.end()) {
        if (entry != nullptr) {
          throw Refusal{"results of compiled code that depend on its gradients"};
        }
        found.position = known->second;
        continue;
      }
      if (!computes) {
        continue;
      }
      calls.emplace(call->get(), static_cast<int>(visits.size()));
      Visit visit = visit_call(**call, node);
      visit.call = *call;
      for (Node* one : visit.entries) {
        if (one != nullptr) {
          found_.at(one).position = static_cast<int>(visits.size());
        }
      }
      found.position = static_cast<int>(visits.size());
      visits.push_back(std::move(visit));
      continue;
    }
    found.position = static_cast<int>(visits.size());
    visits.push_back({owners_.at(node), 'g', nullptr, {}, {}, {}});
  }
  return visits;
}

// Whether an output's history leads to another end of the same call that has hooks or is asked for: the call as one hides it.
bool Walk::passes_by_a_look(const CompiledBackward& entry) const {
  std::vector<const Node*> nodes = entry.call()->passed_by(entry.place());
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node* node) {
    bool asked = captures_ && std::find(wanted_.begin(), wanted_.end(), node) != wanted_.end();
    return asked || !const_cast<Node*>(node)->tensor_pre_hooks().empty() || !const_cast<Node*>(node)->retains_grad_hooks().empty();
  });
}

// All nodes of the call that the walk has come to, as one. `node`: the first that computes gradients.
Visit Walk::visit_call(const CompiledCall& call, Node* node) {
  const Training& program = call.program();
  Visit visit{owners_.at(node), 'c', nullptr, {}, {}, Bits(program.requiring.size())};
  visit.entries.resize(program.differentiable.size());
  visit.edges.resize(program.requiring.size());
  for (Node* one : order_) {
    auto* entry = entry_of(one);
    if (entry != nullptr && found_.at(one).runs && entry->call().get() == &call) {
      visit.entries.at(static_cast<std::size_t>(entry->place())) = one;
      if (program.single) {
        visit.edges = one->next_edges();
      }
    }
    auto* leaving = dynamic_cast<CompiledGradients*>(one);
    if (leaving != nullptr && leaving->call().get() == &call) {
      const std::vector<int>& places = program.exits.at(leaving->exit()).inputs;
      for (std::size_t i = 0; i < places.size(); ++i) {
        visit.edges.at(static_cast<std::size_t>(places[i])) = leaving->next_edge(i);
      }
    }
  }
  return visit;
}

void Walk::finish(Node* node) {
  bool wanted = wanted_.empty() || std::find(wanted_.begin(), wanted_.end(), node) != wanted_.end();
  bool runs = wanted && !captures_;
  for (const Edge& edge : edges_of(*node)) {
    if (edge.function) {
      Found& below = found_.at(edge.function.get());
      ++below.missing;
      runs = runs || below.needed;
    }
  }
  Found& found = found_.at(node);
  found.needed = wanted || runs;
  found.runs = runs;
}

}  // namespace dyncomp::executor
