// The nodes of autograd behind the outputs of a compiled function.
//
//   y = f(x, w)                     y -> CompiledBackward -> x, w
//
//   a = f(x, w); b = g(w, y)        a -> CompiledBackward -> CompiledGradients of x    -> x
//                                                         -> CompiledGradients of w    -> w
//                                   b -> CompiledBackward -> the same of w
//                                                         -> CompiledGradients of y    -> y
//
// So a backward walks what eager's would walk, and no more. The gradients are computed by one program when the first of the latter
// nodes runs (`CompiledCall`).
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include <torch/csrc/autograd/function.h>

#include "executor/compiled_call.h"

namespace dyncomp::executor {

// Behind output `place` of a call (a position in `differentiable`). Where a call has but one, its next edges are those of
// `requiring`; else they lead to a `CompiledGradients` each.
// After a backward that is itself differentiated there is a graph of eager's for the same output (`CompiledCall::rerun`). Gradients go
// there from then on: what arrives for the output and what the second derivative brings about meet in the same nodes, as in eager.
class CompiledBackward final : public torch::autograd::Node {
 public:
  // How this torch counts references to nodes.
  using Ref = decltype(torch::autograd::Edge::function);

  CompiledBackward(std::shared_ptr<CompiledCall> call, int place) : call_(std::move(call)), place_(place) {}
  ~CompiledBackward() override { call_->end_output(place_); }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return "CompiledBackward"; }

  const std::shared_ptr<CompiledCall>& call() const { return call_; }
  int place() const { return place_; }
  // To be called before anything leads here: the longest way from here to a leaf is longer than its edges tell. The engine leaves out
  // nodes that are nearer to the leaves than all that is asked for, and eager's graph may come to stand here.
  void deepen(uint64_t steps) { topological_nr_ += steps; }
  void follow(torch::autograd::Edge eager);
  bool is_followed() const { return static_cast<bool>(eager_.function); }
  // Its edges as they were made.
  const torch::autograd::edge_list& own_edges() const { return is_followed() ? compiled_ : next_edges_; }

 private:
  std::shared_ptr<CompiledCall> call_;
  int place_;
  torch::autograd::Edge eager_;
  torch::autograd::edge_list compiled_;  // its edges before it was made to follow `eager_`
};

// Gives the gradients of one of `Training::exits` for gradients of the outputs that lead there.
class CompiledGradients final : public torch::autograd::Node {
 public:
  CompiledGradients(std::shared_ptr<CompiledCall> call, std::size_t exit) : call_(std::move(call)), exit_(exit) { call_->set_exit(exit, this); }
  ~CompiledGradients() override { call_->set_exit(exit_, nullptr); }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override { return call_->leave(*this, exit_, std::move(gradients)); }
  std::string name() const override { return "CompiledGradients"; }

  const std::shared_ptr<CompiledCall>& call() const { return call_; }
  std::size_t exit() const { return exit_; }

 private:
  std::shared_ptr<CompiledCall> call_;
  std::size_t exit_;
};

// Stands before a leaf, so that leaves that a node reaches at once get their gradients in the order of eager's backward: the engine
// runs ready nodes by the greatest sequence number, and a leaf right away.
class BeforeLeaf final : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override { return std::move(gradients); }
  std::string name() const override { return "BeforeLeaf"; }
};

// Whether the graph task that runs executes the node; a node that it began with is not known to it.
bool is_executed(const torch::autograd::Node* node);

// A node as this torch owns it: by an intrusive or a shared pointer.
template <typename Own, typename Ref = CompiledBackward::Ref>
Ref own_node(Own* node) {
  if constexpr (std::is_same_v<Ref, std::shared_ptr<torch::autograd::Node>>) {
    return Ref(node, [](auto* dead) { deleteNode(dead); });
  } else {
    return Ref::unsafe_steal_from_new(node);
  }
}

// How many know the node.
template <typename Own, typename Ref = CompiledBackward::Ref>
std::size_t references(Own* node) {
  if constexpr (std::is_same_v<Ref, std::shared_ptr<Own>>) {
    return static_cast<std::size_t>(node->weak_from_this().use_count());
  } else {
    return c10::raw::intrusive_ptr::use_count(node);
  }
}

// The node, if it does not die at this moment.
template <typename Own, typename Ref = CompiledBackward::Ref>
Ref alive(Own* node) {
  if constexpr (std::is_same_v<Ref, std::shared_ptr<Own>>) {
    return node->weak_from_this().lock();
  } else {
    return c10::raw::intrusive_ptr::use_count(node) != 0 ? Ref(node->getptr()) : Ref();
  }
}

}  // namespace dyncomp::executor
