// Reads an `op` instruction against the operator's schema. Constants and defaults are converted once, in its order.
#include <optional>

#include "executor/op.h"
#include "executor/opcodes.h"
#include "executor/torch_values.h"

namespace dyncomp::executor {

namespace {

// The element type of a list argument, through `Optional[...]`; null for anything else.
c10::TypePtr list_element(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) {
    return list_element(optional->getElementType());
  }
  auto list = type->cast<c10::ListType>();
  return list ? list->getElementType() : nullptr;
}

bool is_tensor_type(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) {
    return is_tensor_type(optional->getElementType());
  }
  return type->kind() == c10::TypeKind::TensorType;
}

bool is_number(PyObject* object) {
  return PyBool_Check(object) || PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object);
}

// How a number gets into an argument of this type; nothing if it does not.
std::optional<Form> form_for(const c10::TypePtr& type, NumberType number) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      return form_for(type->expectRef<c10::OptionalType>().getElementType(), number);
    case c10::TypeKind::NumberType:
      return Form::kScalar;
    case c10::TypeKind::TensorType:
      return Form::kTensor;
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      return Form::kFloat;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return number == NumberType::kFloat ? std::nullopt : std::make_optional(Form::kInt);
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
      return number == NumberType::kTruth ? std::make_optional(Form::kTruth) : std::nullopt;
    default:
      return std::nullopt;
  }
}

bool mentions(PyObject* list, bool (*what)(PyObject*)) {
  for (PyObject* item : items(list, "a list")) {
    if (what(item)) {
      return true;
    }
  }
  return false;
}

bool is_slot(PyObject* object) { return slot_index(object) >= 0; }

int checked_slot(Builder& builder, PyObject* object) {
  int64_t slot = slot_index(object);
  builder.readable(slot);
  return static_cast<int>(slot);
}

class CallBuilder {
 public:
  CallBuilder(Builder& builder, const c10::FunctionSchema& schema) : builder_(builder), schema_(schema) {
    call_.constants.resize(schema.arguments().size());
    given_.resize(schema.arguments().size());
  }

  void positional(PyObject* args) {
    std::size_t position = 0;
    for (PyObject* value : items(args, "args")) {
      if (position >= given_.size() || schema_.arguments()[position].kwarg_only()) {
        throw BuildError(name() + " takes " + std::to_string(position) + " positional arguments, got more");
      }
      place(position++, value);
    }
  }

  void keyword(PyObject* key, PyObject* value) {
    std::string keyword = to_text(key, "a keyword");
    auto position = schema_.argumentIndexWithName(keyword);
    if (!position) {
      throw BuildError(name() + " has no argument '" + keyword + "'");
    }
    if (given_[*position]) {
      throw BuildError(name() + " got '" + schema_.arguments()[*position].name() + "' twice");
    }
    place(*position, value);
  }

  Call finish() && {
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (given_[i]) {
        continue;
      }
      const auto& argument = schema_.arguments()[i];
      if (!argument.default_value()) {
        throw BuildError(name() + " misses argument '" + argument.name() + "'");
      }
      call_.constants[i] = *argument.default_value();
    }
    return std::move(call_);
  }

 private:
  std::string name() const { return c10::toString(schema_.operator_name()); }

  void place(std::size_t position, PyObject* value) {
    given_[position] = true;
    const auto& argument = schema_.arguments()[position];
    if (is_slot(value)) {
      if (!is_tensor_type(argument.type())) {
        throw BuildError(name() + ": argument '" + argument.name() + "' takes " + argument.type()->str() + ", not a tensor");
      }
      call_.slots.push_back({position, checked_slot(builder_, value)});
    } else if (is_register(value)) {
      Number number = builder_.register_named(value);
      call_.numbers.push_back({position, checked_form(argument, argument.type(), number), number});
    } else if (auto element = PyTuple_Check(value) || PyList_Check(value) ? list_element(argument.type()) : nullptr;
               element && (is_tensor_type(element) || mentions(value, is_register))) {
      place_list(position, value, element);
    } else if (is_number(value) && is_tensor_type(argument.type())) {
      call_.constants[position] = wrapped_number(to_scalar(value, "a number"));
    } else {
      call_.constants[position] = to_ivalue(value, argument);
    }
  }

  Form checked_form(const c10::Argument& argument, const c10::TypePtr& type, const Number& number) const {
    auto form = form_for(type, number.type);
    if (!form) {
      throw BuildError(name() + ": argument '" + argument.name() + "' takes " + argument.type()->str() + ", not the number in a register");
    }
    return *form;
  }

  void place_list(std::size_t position, PyObject* value, const c10::TypePtr& element) {
    if (element->kind() == c10::TypeKind::FloatType || element->kind() == c10::TypeKind::NumberType) {
      NumberListFill fill{position, element->kind() == c10::TypeKind::FloatType ? Form::kFloat : Form::kScalar, {}};
      for (PyObject* item : items(value, "a list")) {
        fill.numbers.push_back(to_number(builder_, item, "an element"));
      }
      call_.number_lists.push_back(std::move(fill));
      return;
    }
    if (!is_tensor_type(element)) {
      std::vector<Int> values;
      for (PyObject* item : items(value, "a list")) {
        values.push_back(to_int(builder_, item, "an element"));
      }
      call_.int_lists.push_back({position, Ints(values)});
      return;
    }
    TensorListFill fill{position, element->kind() == c10::TypeKind::OptionalType, {}, {}};
    c10::Argument one("element", element);
    for (PyObject* item : items(value, "a list")) {
      bool slot = is_slot(item);
      fill.slots.push_back(slot ? checked_slot(builder_, item) : -1);
      auto fixed = slot || item == Py_None ? c10::IValue() : to_ivalue(item, one);
      if (!slot && fixed.isNone() && !fill.optional) {
        throw BuildError(name() + ": argument '" + schema_.arguments()[position].name() + "' takes no None");
      }
      fill.fixed.push_back(fixed.isNone() ? at::Tensor() : fixed.toTensor());
    }
    call_.tensor_lists.push_back(std::move(fill));
  }

  Builder& builder_;
  const c10::FunctionSchema& schema_;
  Call call_;
  std::vector<bool> given_;
};

int result_slot(Builder& builder, PyObject* object) {
  return object == Py_None ? -1 : builder.define(to_int64(object, "a result"));
}

// What a register holds that takes a result of this type; a Scalar is what the register's name says, checked at the call.
NumberType result_type(const c10::TypePtr& type, PyObject* target) {
  switch (type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return NumberType::kInt;
    case c10::TypeKind::BoolType:
      return NumberType::kTruth;
    case c10::TypeKind::FloatType:
      return NumberType::kFloat;
    case c10::TypeKind::NumberType:
      return is_float_register(target) ? NumberType::kFloat : NumberType::kInt;
    default:
      return NumberType::kNone;
  }
}

Result read_result(Builder& builder, const c10::TypePtr& type, PyObject* target) {
  if (target == Py_None) {
    return {Result::Kind::kTensor, {-1}};
  }
  if (is_tensor_type(type)) {
    return {Result::Kind::kTensor, {result_slot(builder, target)}};
  }
  NumberType number = result_type(type, target);
  if (is_register(target) && number != NumberType::kNone && is_float_register(target) == (number == NumberType::kFloat)) {
    auto kind = number == NumberType::kFloat ? Result::Kind::kFloat : number == NumberType::kTruth ? Result::Kind::kTruth : Result::Kind::kInt;
    return {kind, {builder.define_register(to_int64(PyTuple_GET_ITEM(target, 1), "a register"), number)}};
  }
  auto element = list_element(type);
  if (!element || !is_tensor_type(element)) {
    throw BuildError("a result of type " + type->str() + " has no such place in a plan");
  }
  Result result{Result::Kind::kTensors, {}};
  for (PyObject* item : items(target, "slots of a list of tensors")) {
    result.targets.push_back(result_slot(builder, item));
  }
  return result;
}

std::vector<Result> read_results(Builder& builder, const c10::FunctionSchema& schema, PyObject* outs) {
  auto wanted = items(outs, "outs");
  const auto& returns = schema.returns();
  bool dropped = wanted.empty() || (wanted.size() == 1 && wanted[0] == Py_None);
  bool nested = wanted.size() == 1 && PyTuple_Check(wanted[0]);
  if (!dropped && !nested && returns.size() == 1 && list_element(returns[0].real_type())) {
    return {read_result(builder, returns[0].real_type(), outs)};  // a sole list may name its slots directly
  }
  if (wanted.size() > returns.size()) {
    throw BuildError(c10::toString(schema.operator_name()) + " returns " + std::to_string(returns.size()) + " values, not " +
                     std::to_string(wanted.size()));
  }
  std::vector<Result> results;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    results.push_back(read_result(builder, returns[i].real_type(), wanted[i]));
  }
  return results;
}

}  // namespace

StepPtr build_op(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 4);
  const auto& op = builder.ops[fields.index(builder.ops.size(), "op")];
  CallBuilder call(builder, op.schema());
  call.positional(fields.object());
  PyObject* kwargs = fields.object();
  if (PyDict_Check(kwargs)) {
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &key, &value);) {
      call.keyword(key, value);
    }
  } else {
    for (PyObject* pair : items(kwargs, "kwargs")) {
      auto parts = items(pair, "a keyword argument");
      if (parts.size() != 2) {
        throw BuildError("a keyword argument must be a pair");
      }
      call.keyword(parts[0], parts[1]);
    }
  }
  auto results = read_results(builder, op.schema(), fields.object());
  builder.program.heavy = true;
  return make_op(op, std::move(call).finish(), std::move(results));
}

}  // namespace dyncomp::executor
