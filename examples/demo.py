"""`make demo`: BERT-base through dyncomp.optimize beside eager: same numbers, speeds, what was compiled."""

import statistics
import time

import torch
import transformers

import dyncomp


def alternate(calls, rounds=15):
    """Median seconds of each call, measured in turn so that the machine's drift hits all alike."""
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, into in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            into.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


def main():
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig()).eval()
    ids = torch.randint(0, 30000, (1, 128))
    mask = torch.ones_like(ids)
    fast = dyncomp.optimize(model)
    with torch.no_grad():
        want = model(ids, attention_mask=mask)
        start = time.perf_counter()
        got = fast(ids, attention_mask=mask)
        first = time.perf_counter() - start
        difference = (want.last_hidden_state - got.last_hidden_state).abs().max().item()
        eager, ours = alternate([lambda: model(ids, attention_mask=mask), lambda: fast(ids, attention_mask=mask)])
    stats = dyncomp.stats()
    print(f"BERT-base, batch 1, 128 tokens, fp32, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"  largest difference to eager   {difference:.1e}")
    print(f"  first call (compile included) {first:.2f} s")
    print(f"  eager   {eager * 1e3:7.1f} ms a call")
    print(f"  dyncomp {ours * 1e3:7.1f} ms a call   {eager / ours:.2f}x")
    print(f"  compiled: {stats.graphs} graph(s), {stats.graph_breaks} break(s), {stats.kernels} kernels")
    if stats.fallbacks:
        print(f"  fallbacks: {stats.fallbacks}")
    assert difference <= 1e-4, "the numbers differ from eager's"


if __name__ == "__main__":
    main()
