"""Where a compiled model's time goes: each instruction of its plan, timed natively.

    python bench/profile_plan.py BERT-base              # a case of test_models.py; --threads 1, --rounds 20, --top 30, --by-kind
    python bench/profile_plan.py Llama-8 --train        # a case of training_models.py: its forward, then its backward

Prints the minimum of each instruction over the rounds, and what the call costs beyond the plan (guards, outputs).
"""

import argparse
import collections
import importlib
import time

import torch
import training_models
from test_models import MODELS

import dyncomp
from dyncomp._frame import _exec


def plans_of(call):
    """Runs `call` once; the plans made meanwhile, with the inputs that they were given first."""
    seen = []
    real = _exec.Plan

    backend = dyncomp.lookup_backend("codegen")

    def compile_and_keep(request):
        plan = backend.compile(request)
        if isinstance(plan, real):
            seen.append((plan, list(request.real_inputs)))
        return plan

    fast = dyncomp.optimize(call, backend=type(backend)("codegen", compile_and_keep, native=True))
    return fast, seen


def describe(plan, instruction):
    """Name of the kernel or operator that an instruction runs, and the sizes that matter."""
    data = plan.data()
    match instruction[0]:
        case "kernel":
            return f"kernel {data['kernels'][instruction[1]][1]} x{instruction[2]} grain {instruction[3]}"
        case "op":
            return f"op {data['ops'][instruction[1]][0]}"
        case _:
            return " ".join(map(str, instruction[:4]))


def kind_of(plan, instruction):
    data = plan.data()
    return f"op {data['ops'][instruction[1]][0]}" if instruction[0] == "op" else instruction[0]


def profile(plan, inputs, rounds):
    """Least nanoseconds of each instruction."""
    best = plan.profile(*inputs)
    for _ in range(rounds - 1):
        best = list(map(min, best, plan.profile(*inputs)))
    return best


def time_of(call, rounds):
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def report(plan, spent, top, by_kind):
    code = plan.data()["code"]
    total = sum(spent)
    print(f"{len(code)} instructions, {total / 1e6:.3f} ms")
    kinds = collections.Counter()
    count = collections.Counter()
    for instruction, ns in zip(code, spent, strict=True):
        kinds[kind_of(plan, instruction)] += ns
        count[kind_of(plan, instruction)] += 1
    for kind, ns in kinds.most_common():
        print(f"  {ns / 1e6:9.3f} ms {100 * ns / total:5.1f}%  {count[kind]:5d}  {kind}")
    if by_kind:
        return
    print("slowest:")
    for at in sorted(range(len(code)), key=lambda i: -spent[i])[:top]:
        print(f"  {spent[at] / 1e3:9.1f} us  {at:5d}  {describe(plan, code[at])}")


def profile_training(name, rounds, top, by_kind):
    """Each plan runs twice a step here: once timed, once for its results."""
    generator = importlib.import_module("dyncomp.codegen.compile")
    compile_graph = generator.compile_graph
    best = {}

    def compile_and_time(graph, options=None):
        plan = compile_graph(graph, options)

        def run(*inputs):
            spent = plan.profile(*inputs)
            best[plan] = list(map(min, best.get(plan, spent), spent))
            return plan(*inputs)

        return run

    module, inputs = training_models.make(name)
    generator.compile_graph = compile_and_time
    try:
        fast = dyncomp.optimize(module)
        for _ in range(rounds):
            training_models.step(fast, module, inputs)
    finally:
        generator.compile_graph = compile_graph
    for plan, spent in best.items():
        report(plan, spent, top, by_kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=[*MODELS, *training_models.MODELS])
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--top", type=int, default=30)
    parser.add_argument("--by-kind", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.train:
        profile_training(args.model, args.rounds, args.top, args.by_kind)
        return
    torch.manual_seed(0)
    model, inputs = MODELS[args.model]()
    model.eval()
    fast, seen = plans_of(model)
    with torch.no_grad():
        fast(**inputs)
        for plan, given in seen:
            report(plan, profile(plan, given, args.rounds), args.top, args.by_kind)
        print(f"whole call {time_of(lambda: fast(**inputs), args.rounds) * 1e3:.3f} ms", end="; ")
        print(f"eager {time_of(lambda: model(**inputs), args.rounds) * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
