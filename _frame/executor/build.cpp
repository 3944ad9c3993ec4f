#include "executor/build.h"

#include <algorithm>

#include <torch/csrc/autograd/python_variable.h>

#include "executor/opcodes.h"

namespace dyncomp::executor {

namespace {

constexpr int64_t kMaxSlots = int64_t{1} << 24;

std::pair<PyObject*, PyObject*> pair_of(PyObject* object, const char* what) {
  auto parts = items(object, what);
  if (parts.size() != 2) {
    throw BuildError(std::string(what) + " must be a pair");
  }
  return {parts[0], parts[1]};
}

std::string shown(PyObject* object) {
  PyObject* repr = PyObject_Repr(object);
  const char* utf8 = repr != nullptr ? PyUnicode_AsUTF8(repr) : nullptr;
  std::string result = utf8 != nullptr ? utf8 : "?";
  PyErr_Clear();  // it only decorates an error that is under way
  Py_XDECREF(repr);
  return result.size() <= 300 ? result : result.substr(0, 300) + "...";
}

void read_constants(Builder& builder, PyObject* constants) {
  for (PyObject* row : items(constants, "constants")) {
    auto [slot_object, tensor] = pair_of(row, "a constant");
    int64_t slot = to_int64(slot_object, "a constant's slot");
    SlotState& state = builder.definable(slot);
    if (!THPVariable_Check(tensor)) {
      throw BuildError("the constant of slot " + std::to_string(slot) + " is no tensor");
    }
    state.live = state.constant = true;
    builder.program.constants.emplace_back(static_cast<int>(slot), THPVariable_Unpack(tensor));
  }
  std::sort(builder.program.constants.begin(), builder.program.constants.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
}

void read_kernels(Builder& builder, PyObject* kernels) {
  for (PyObject* row : items(kernels, "kernels")) {
    auto [address_object, name] = pair_of(row, "a kernel");
    int64_t address = to_int64(address_object, "a kernel's address");
    if (address == 0) {
      throw BuildError("kernel " + to_text(name, "a kernel's name") + " has no address");
    }
    builder.kernels.push_back(reinterpret_cast<KernelFn>(address));
  }
}

void read_ops(Builder& builder, PyObject* ops) {
  for (PyObject* row : items(ops, "ops")) {
    auto [name_object, overload_object] = pair_of(row, "an operator");
    std::string name = to_text(name_object, "an operator's name"), overload = to_text(overload_object, "an overload");
    auto op = c10::Dispatcher::singleton().findSchema({name, overload == "default" ? "" : overload});
    if (!op) {
      throw BuildError("no operator " + name + (overload.empty() ? "" : "." + overload));
    }
    builder.ops.push_back(*op);
  }
}

void read_code(Builder& builder, PyObject* code) {
  int position = 0;
  for (PyObject* instruction : items(code, "code")) {
    try {
      auto fields = items(instruction, "an instruction");
      if (fields.empty()) {
        throw BuildError("is empty");
      }
      std::string name = to_text(fields[0], "an instruction's name");
      BuildStep build = find_opcode(name.c_str());
      if (build == nullptr) {
        throw BuildError("no such instruction; known: " + opcode_names());
      }
      builder.program.steps.push_back(build(builder, instruction));
    } catch (const BuildError& e) {
      throw BuildError("instruction " + std::to_string(position) + " " + shown(instruction) + ": " + e.what());
    }
    ++position;
  }
}

// Which slots leave the plan must be known before the code is read.
void mark_escaping(Builder& builder, PyObject* outputs) {
  for (PyObject* row : items(outputs, "outputs")) {
    auto [kind, value] = pair_of(row, "an output");
    if (to_text(kind, "an output's kind") == "slot") {
      int64_t slot = to_int64(value, "an output's slot");
      if (slot < 0 || slot >= static_cast<int64_t>(builder.slots.size())) {
        throw BuildError("output: no slot " + std::to_string(slot));
      }
      builder.slots[slot].escapes = true;
    }
  }
}

Output read_output(Builder& builder, PyObject* row) {
  auto [kind_object, value] = pair_of(row, "an output");
  std::string kind = to_text(kind_object, "an output's kind");
  if (kind == "slot") {
    int64_t slot = to_int64(value, "an output's slot");
    builder.readable(slot);
    return {Output::Kind::kSlot, static_cast<int>(slot), false, nullptr};
  }
  if (kind == "input") {
    int64_t input = to_int64(value, "an output's input");
    if (input < 0 || input >= builder.program.inputs) {
      throw BuildError("no input " + std::to_string(input));
    }
    return {Output::Kind::kInput, static_cast<int>(input), false, nullptr};
  }
  if (kind == "const") {
    return {Output::Kind::kConst, 0, false, value};
  }
  if (is_register(row)) {
    Number number = builder.register_named(row);
    return {Output::Kind::kNumber, number.bits.reg, false, nullptr, number.type};
  }
  throw BuildError("no output kind '" + kind + "'; known: slot, input, const, s, f");
}

std::vector<Output> read_outputs(Builder& builder, PyObject* outputs) {
  std::vector<Output> result;
  for (PyObject* row : items(outputs, "outputs")) {
    try {
      result.push_back(read_output(builder, row));
    } catch (const BuildError& e) {
      throw BuildError("output " + shown(row) + ": " + e.what());
    }
  }
  // A slot's tensor may be moved out by the last output that names it, unless the slot is not the call's own.
  std::vector<bool> taken(builder.slots.size());
  for (auto output = result.rbegin(); output != result.rend(); ++output) {
    if (output->kind == Output::Kind::kSlot) {
      bool own = output->index >= builder.program.inputs && !builder.slots[output->index].constant;
      output->last = own && !taken[output->index];
      taken[output->index] = true;
    }
  }
  return result;
}

}  // namespace

BuiltPlan build_plan(const PlanData& data) {
  auto inputs = static_cast<int64_t>(data.inputs.size());
  if (data.slots < inputs || data.slots > kMaxSlots) {
    throw BuildError("inputs=" + std::to_string(inputs) + ", slots=" + std::to_string(data.slots) +
                     ": the inputs are the first slots, and there are at most " + std::to_string(kMaxSlots));
  }
  if (data.arena < 0) {
    throw BuildError("negative arena " + std::to_string(data.arena));
  }
  auto program = std::make_unique<Program>();
  program->inputs = static_cast<int>(inputs);
  if (std::any_of(data.inputs.begin(), data.inputs.end(), [](NumberType kind) { return kind != NumberType::kNone; })) {
    program->kinds = data.inputs;
  }
  program->slots = static_cast<int>(data.slots);
  program->arena = static_cast<uint64_t>(data.arena);
  Builder builder{*program, std::vector<SlotState>(data.slots), {}, {}, {}};
  for (int input = 0; input < program->inputs; ++input) {
    builder.slots[input].number = data.inputs[input] != NumberType::kNone;
    builder.slots[input].live = !builder.slots[input].number;
  }
  read_constants(builder, data.constants);
  read_kernels(builder, data.kernels);
  read_ops(builder, data.ops);
  mark_escaping(builder, data.outputs);
  read_code(builder, data.code);
  auto outputs = read_outputs(builder, data.outputs);
  program->registers = static_cast<int>(builder.registers.size());
  return {std::move(program), std::move(outputs)};
}

}  // namespace dyncomp::executor
