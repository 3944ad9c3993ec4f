"""Whole models in eval mode, fp32, batch 1, random weights: eager, dyncomp, torch.compile."""

import pytest
import torch
import transformers as T

import dyncomp


def bert():
    ids = torch.randint(0, 30000, (1, 128))
    return T.BertModel(T.BertConfig()), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def gpt2():
    return T.GPT2LMHeadModel(T.GPT2Config()), {"input_ids": torch.randint(0, 50000, (1, 64)), "use_cache": False}


def llama():
    config = T.LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=32000,
    )
    return T.LlamaForCausalLM(config), {"input_ids": torch.randint(0, 32000, (1, 64)), "use_cache": False}


def resnet50():
    return T.ResNetModel(T.ResNetConfig()), {"pixel_values": torch.randn(1, 3, 224, 224)}


MODELS = {"BERT-base": bert, "GPT-2": gpt2, "Llama-8": llama, "ResNet-50": resnet50}


def largest_difference(a, b):
    return max(
        (x - y).abs().max().item()
        for x, y in zip(a.to_tuple(), b.to_tuple(), strict=True)
        if isinstance(x, torch.Tensor)
    )


@pytest.mark.parametrize("name", MODELS)
def test_model(compare, peer, name):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.eval()
    dyncomp.reset()
    sides = {"eager": model, "dyncomp": dyncomp.optimize(model)}
    if peer:
        sides["torch.compile"] = torch.compile(model)
    with torch.no_grad():
        difference = largest_difference(model(**inputs), sides["dyncomp"](**inputs))
        stats = dyncomp.stats()
        assert difference <= 1e-4, difference
        assert (stats.graphs, stats.graph_breaks) == (1, 0), stats
        compare(
            name,
            {n: lambda f=f: f(**inputs) for n, f in sides.items()},
            rounds=15,
            difference=difference,
            kernels=stats.kernels,
        )
