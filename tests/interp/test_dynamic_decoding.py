"""Greedy decoding with a growing cache of keys and values: few compiles, eager's tokens."""

import pytest
import torch

import dyncomp
from dyncomp import config

STEPS, LONGEST = 24, 64


def gpt2(transformers):
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=LONGEST, bos_token_id=1, eos_token_id=2
        )
    )


def llama(transformers):
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=37, max_position_embeddings=LONGEST, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


def decoded(model, ids, cache):
    tokens = []
    for _ in range(STEPS):
        output = model(ids, past_key_values=cache, use_cache=True)
        cache, ids = output.past_key_values, output.logits[:, -1].argmax(-1, keepdim=True)
        tokens.append(ids)
    return torch.cat(tokens, 1)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["growing", "static"])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_decoding(fresh, make, kind):
    transformers = pytest.importorskip("transformers")
    model = make(transformers).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # so that tokens differ from step to step

    def cache():
        if kind == "static":
            return transformers.StaticCache(config=model.config, max_cache_len=LONGEST)
        return transformers.DynamicCache(config=model.config)

    with torch.no_grad(), config.patch(automatic_dynamic=True):
        fast = dyncomp.optimize(model, backend="aot_eager")
        for batch, length, most in ((1, 7, 4), (3, 5, 3), (1, 9, 2)):
            ids = torch.randint(3, 97, (batch, length))
            before = dyncomp.stats().frames
            want = decoded(model, ids, cache())
            assert torch.equal(decoded(fast, ids, cache()), want)
            assert dyncomp.stats().frames - before <= most
    assert dyncomp.stats().graph_breaks == 0 and want.unique().numel() > 2
