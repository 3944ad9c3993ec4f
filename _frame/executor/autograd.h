// The node of autograd behind the outputs of a compiled function.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "executor/training.h"

namespace dyncomp::executor {

class CompiledBackward final : public torch::autograd::Node {
 public:
  // How this torch counts references to nodes.
  using Ref = decltype(torch::autograd::Edge::function);

  explicit CompiledBackward(TrainingPtr training) : training_(std::move(training)) {}

  // Keeps what the backward needs. `values`: what the forward returned. Called once the outputs have their history.
  void keep(const Values& given, const std::vector<at::Tensor>& values, at::Tensor generator_state);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return "CompiledBackward"; }
  void release_variables() override;
  void will_release_variables() override { last_run_ = true; }

  // For who runs the backward in another way: the program, and a new tuple of what its backward is given before the gradients.
  const Training* program() const { return training_.get(); }
  py::tuple saved_objects();
  bool has_saved_hooks() const;

 private:
  using Gradients = torch::autograd::variable_list;

  void check_not_released();
  Values unpack_saved();
  Gradients run(const Backward& backward, Gradients& gradients);
  Gradients call_python(PyObject* call, const Values& arguments) const;
  Gradients rerun(const Gradients& gradients, bool create_graph);
  const Backward* find(const std::vector<bool>& pattern, uint64_t autocast) const;
  const Backward* prepare(const std::vector<bool>& pattern, uint64_t autocast);
  Gradients spread(PyObject* results) const;

  TrainingPtr training_;
  std::vector<torch::autograd::SavedVariable> saved_;
  std::vector<at::Tensor> inputs_;   // for a backward that is itself differentiated
  std::vector<PlacedNumber> numbers_;  // those among the inputs
  std::vector<uint32_t> versions_;
  at::Tensor generator_state_;
  bool released_ = false, last_run_ = false;
};

// A node as this torch owns it: by an intrusive or a shared pointer.
template <typename Ref = CompiledBackward::Ref>
Ref own_node(CompiledBackward* node) {
  if constexpr (std::is_same_v<Ref, std::shared_ptr<torch::autograd::Node>>) {
    return Ref(node, [](auto* dead) { deleteNode(dead); });
  } else {
    return Ref::unsafe_steal_from_new(node);
  }
}

}  // namespace dyncomp::executor
