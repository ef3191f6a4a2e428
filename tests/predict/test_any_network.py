"""Attention, recurrent and Hugging Face networks: their dropout is random, held and seeded."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bayesdrop import FunctionDraw, predict

# Sites are switched off on purpose here; that this is said has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:predict. these are not random:bayesdrop.PartlyRandom")

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Apply(nn.Module):
    """A module whose forward is a function of it and its inputs."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part.double() if isinstance(part, nn.Module) else part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


# scaled dot product attention

MASK = torch.tensor([[1, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
ATTENTION: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "boolean mask": {"attn_mask": MASK},
    "float mask": {"attn_mask": torch.zeros(4, 4, dtype=torch.float64).masked_fill(~MASK, -1e9)},
    "infinite mask": {"attn_mask": torch.zeros(4, 4, dtype=torch.float64).masked_fill(~MASK, -torch.inf)},
    "scale": {"scale": 0.3},
}


def attend(self: Any, x: Tensor) -> Tensor:
    """(N, 4, 8) -> (N, 4, 8): two heads of four units."""
    q = x.unflatten(-1, (2, 4)).transpose(1, 2)
    k, v = q.roll(1, 2), q.roll(1, -1)
    if self.grouped:
        k, v = k[:, :1], v[:, :1]
    p = self.p if self.training else 0.0
    h = F.scaled_dot_product_attention(q, k, v, dropout_p=p, **self.options)
    return h.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("name", [*ATTENTION, "grouped"])
def test_attention_is_held_and_without_noise_it_is_torchs(name: str, assert_is_a_function: Any) -> None:
    options = ATTENTION.get(name, {"enable_gqa": True})
    x = normal(5, 4, 8)
    model = Apply(attend, p=0.4, grouped=name == "grouped", options=options)
    assert_is_a_function(model, x)
    # As p goes to 0, a draw becomes the function of eval mode, masked queries and all.
    model.p = 1e-9
    with torch.no_grad(), FunctionDraw(model):
        held = model(x)
    torch.testing.assert_close(held, model.eval()(x), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["plain", "causal"])
def test_attention_has_the_moments_of_training(name: str, assert_moments_of_training: Any) -> None:
    model = Apply(attend, p=0.4, grouped=False, options=ATTENTION[name])
    assert_moments_of_training(model, normal(2, 4, 8))


# nn.MultiheadAttention and nn.Transformer


def multihead(self: Any, x: Tensor) -> Tensor:
    """(N, L, 8) -> (N, L, 8)"""
    turn = (lambda t: t) if self.attention.batch_first else (lambda t: t.transpose(0, 1))
    key = x[..., : self.attention.kdim].roll(1, 1)
    value = x[..., : self.attention.vdim].roll(1, 1)
    options = {"need_weights": self.weights, **self.options(x)}
    out, weights = self.attention(turn(x), turn(key), turn(value), **options)
    assert (weights is not None) == self.weights
    return turn(out)


def nothing(x: Tensor) -> dict[str, Tensor]:
    return {}


def padding(x: Tensor) -> dict[str, Tensor]:
    mask = torch.zeros(x.shape[:2], dtype=torch.bool)
    mask[:, -1] = x[:, 0, 0] > 0
    return {"key_padding_mask": mask}


def causal(x: Tensor) -> dict[str, Any]:
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    return {"attn_mask": mask, "is_causal": True}


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("dims", [{}, {"kdim": 4, "vdim": 6}, {"add_bias_kv": True, "add_zero_attn": True}])
@pytest.mark.parametrize("options", [nothing, padding, causal])
def test_multihead_attention_is_held(
    weights: bool, batch_first: bool, dims: Any, options: Any, assert_is_a_function: Any
) -> None:
    attention = nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=batch_first, **dims)
    model = Apply(multihead, attention=attention, weights=weights, options=options)
    # As many rows as positions, and as positions times heads.
    for rows in (4, 8):
        assert_is_a_function(model, normal(rows, 4, 8), plans=(None, "loop"))


def test_multihead_attention_has_the_moments_of_training(assert_moments_of_training: Any) -> None:
    for weights in (True, False):
        model = Apply(
            multihead,
            attention=nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=True),
            weights=weights,
            options=nothing,
        )
        assert_moments_of_training(model, normal(2, 3, 8))


TRANSFORMERS = {
    "encoder layer": lambda **o: nn.TransformerEncoderLayer(8, 2, 6, dropout=0.3, **o),
    "encoder": lambda **o: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 6, dropout=0.3, **o), 2, enable_nested_tensor=False
    ),
    "decoder layer": lambda **o: nn.TransformerDecoderLayer(8, 2, 6, dropout=0.3, **o),
    "both": lambda **o: nn.Transformer(8, 2, 1, 1, 6, dropout=0.3, **o),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"batch_first": True}], ids=str)
def test_a_transformer_is_held(name: str, options: Any, assert_is_a_function: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        turned = x if options.get("batch_first") else x.transpose(0, 1)
        out = (
            self.inner(turned, turned.roll(1, -1))
            if name in ("decoder layer", "both")
            else self.inner(turned)
        )
        return out if options.get("batch_first") else out.transpose(0, 1)

    model = Apply(forward, inner=TRANSFORMERS[name](**options))
    for rows in (3, 6):
        assert_is_a_function(model, normal(rows, 3, 8), plans=(None, "loop"), num_draws=4)


@pytest.mark.parametrize("training", [True, False])
def test_the_fast_path_of_an_encoder_does_not_lose_its_dropout(training: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 6, dropout=0.3, batch_first=True).double()
    model = nn.TransformerEncoder(layer, 2).train(training)
    x = normal(3, 4, 8)
    with torch.no_grad():
        draws = predict(model, x, num_draws=5).draws
    assert (draws.std(0) > 0).all()
    torch.testing.assert_close(predict(model, x, num_draws=5).draws, draws)
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[:, 3] = True
    draws = predict(model, {"src": x, "src_key_padding_mask": mask}, num_draws=5).draws
    assert (draws[:, :, :3].std(0) > 0).all()


def test_an_encoder_layer_has_the_moments_of_training(assert_moments_of_training: Any) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.2, batch_first=True).double()
    assert_moments_of_training(layer, normal(2, 3, 4), copies=300)


def test_attention_without_dropout_inside_a_network_with_dropout_is_no_surprise() -> None:
    model = Apply(
        lambda self, x: self.drop(self.attention(x, x, x)[0]),
        attention=nn.MultiheadAttention(8, 2, batch_first=True),
        drop=nn.Dropout(0.5),
    )
    assert predict(model, normal(3, 4, 8), num_draws=3).std.max() > 0  # and no warning


# recurrent networks

RECURRENT = {
    "LSTM": (nn.LSTM, {}),
    "GRU": (nn.GRU, {}),
    "RNN": (nn.RNN, {}),
    "RNN relu": (nn.RNN, {"nonlinearity": "relu"}),
    "LSTM both ways": (nn.LSTM, {"bidirectional": True}),
    "LSTM projected": (nn.LSTM, {"proj_size": 3}),
    "GRU both ways": (nn.GRU, {"bidirectional": True}),
    "LSTM without bias": (nn.LSTM, {"bias": False}),
}


def network(name: str, **options: Any) -> nn.RNNBase:
    kind, own = RECURRENT[name]
    module: nn.RNNBase = kind(4, 5, num_layers=3, dropout=0.4, **own, **options).double()
    return module


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("recurrent", ["module", "variational"])
def test_a_recurrent_network_is_held(
    name: str, batch_first: bool, recurrent: Any, assert_is_a_function: Any
) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        out = self.network(x if batch_first else x.transpose(0, 1))[0]
        return out if batch_first else out.transpose(0, 1)

    model = Apply(forward, network=network(name, batch_first=batch_first))
    for rows in (4, 3):
        assert_is_a_function(model, normal(rows, 3, 4), recurrent=recurrent, plans=(None,), num_draws=4)


def test_noise_between_layers_is_one_value_a_step_or_one_for_all_steps() -> None:
    """Layers that hand their input on: x comes out times the mask between them."""
    module = nn.RNN(5, 5, num_layers=2, dropout=0.4, nonlinearity="relu", batch_first=True, bias=False)
    with torch.no_grad():
        for layer in (0, 1):
            getattr(module, f"weight_ih_l{layer}").copy_(torch.eye(5))
            getattr(module, f"weight_hh_l{layer}").zero_()
    model, x = Apply(lambda self, x: self.network(x)[0], network=module), normal(3, 6, 5).abs()
    stepwise = predict(model, x, num_draws=40).draws / x
    variational = predict(model, x, num_draws=40, recurrent="variational").draws / x
    for masks in (stepwise, variational):
        torch.testing.assert_close(masks, masks[:, :1].expand_as(masks))
        torch.testing.assert_close(masks[masks > 0], torch.full_like(masks[masks > 0], 1 / 0.6))
        assert (masks == 0).any()
    torch.testing.assert_close(variational, variational[:, :, :1].expand_as(variational))
    assert not torch.allclose(stepwise, stepwise[:, :, :1].expand_as(stepwise))
    with pytest.raises(ValueError, match="'module' or 'variational'"):
        predict(model, x, recurrent="both")


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN", "LSTM both ways"])
def test_a_recurrent_network_has_the_moments_of_training(name: str, assert_moments_of_training: Any) -> None:
    model = Apply(lambda self, x: self.network(x)[0], network=network(name, batch_first=True))
    assert_moments_of_training(model, normal(2, 3, 4), copies=300)


def test_no_noise_is_added_when_the_layers_are_run_one_by_one() -> None:
    """With a rate so small that nothing is dropped, the layers give what the network gives."""
    for name in RECURRENT:
        module = network(name, batch_first=True)
        module.dropout = 1e-9
        x, lengths = normal(4, 3, 4), torch.tensor([3, 1, 2, 3])
        with torch.no_grad(), FunctionDraw(module):
            held = module(x)
            packed = module(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        module.eval()
        for ours, theirs in zip(flat(held), flat(module(x)), strict=True):
            torch.testing.assert_close(ours, theirs)
        expected = module(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        for ours, theirs in zip(flat(packed), flat(expected), strict=True):
            torch.testing.assert_close(ours, theirs)


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [] if value is None else [tensor for part in value for tensor in flat(part)]


@pytest.mark.parametrize("recurrent", ["module", "variational"])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "LSTM both ways"])
def test_packed_sequences_are_held_however_long_the_longest_is(
    name: str, recurrent: Any, assert_is_a_function: Any
) -> None:
    def forward(self: Any, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.network(packed)
        return pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0]

    model = Apply(forward, network=network(name, batch_first=True))
    lengths = torch.tensor([2, 5, 1, 3, 3])
    assert_is_a_function(model, (normal(5, 5, 4), lengths), recurrent=recurrent, plans=(None,), num_draws=4)


def test_a_sequence_without_a_batch_axis_is_held() -> None:
    module = network("LSTM")
    x = normal(6, 4)
    with torch.no_grad(), FunctionDraw(module, index=2):
        first, again = module(x)[0], module(x)[0]
    assert torch.equal(first, again)
    with torch.no_grad(), FunctionDraw(module, index=3):
        assert not torch.equal(module(x)[0], first)


def test_states_may_be_given_and_come_back(assert_is_a_function: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        state = x.new_ones(3, x.shape[0], 5)
        for given in ((state, 2 * state), [state, 2 * state]):
            out, (h, c) = self.network(x, given)
        return torch.cat([out[:, -1], h[-1], c[0]], -1)

    assert_is_a_function(Apply(forward, network=network("LSTM", batch_first=True)), normal(4, 3, 4))


def test_one_recurrent_layer_has_no_dropout() -> None:
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        module = nn.LSTM(4, 5, dropout=0.4, batch_first=True)
    with pytest.raises(ValueError, match="must contain a stochastic layer"):
        predict(Apply(lambda self, x: self.network(x)[0], network=module), normal(2, 3, 4))


# Hugging Face

transformers = pytest.importorskip("transformers")
DynamicCache = transformers.DynamicCache


def bert(attention: str, hidden: float, weights: float) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=16, hidden_dropout_prob=hidden, attention_probs_dropout_prob=weights,
        num_labels=3, attn_implementation=attention,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def gpt2(attention: str, hidden: float, weights: float) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=20, n_positions=16, n_embd=8, n_layer=2, n_head=2, resid_pdrop=hidden, embd_pdrop=hidden,
        attn_pdrop=weights, attn_implementation=attention, use_cache=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def vit(attention: str, hidden: float, weights: float) -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, image_size=8,
        patch_size=4, num_channels=1, hidden_dropout_prob=hidden, attention_probs_dropout_prob=weights,
        attn_implementation=attention, num_labels=3,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def text(rows: int) -> dict[str, Tensor]:
    ids = torch.randint(20, (rows, 4), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, -1] = 0
    return {"input_ids": ids, "attention_mask": mask}


def images(rows: int) -> dict[str, Tensor]:
    return {"pixel_values": normal(rows, 1, 8, 8)}


FACES = {"bert": (bert, text), "gpt2": (gpt2, text), "vit": (vit, images)}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", FACES)
def test_a_hugging_face_model_is_held(name: str, attention: str, assert_is_a_function: Any) -> None:
    build, inputs = FACES[name]
    model = build(attention, 0.1, 0.1).double()
    draws = assert_is_a_function(model, inputs(5), num_draws=5, plans=(None, "loop"))
    assert (draws.std(0) > 0).all()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", FACES)
def test_attention_dropout_of_a_hugging_face_model_is_on(
    name: str, attention: str, assert_moments_of_training: Any
) -> None:
    """With the other dropout at zero, noise comes from attention alone, as it does in training."""
    build, inputs = FACES[name]
    model = build(attention, 0.0, 0.4).double()
    assert_moments_of_training(model, inputs(2), copies=200, num_draws=8)


@pytest.mark.parametrize("name", FACES)
def test_a_hugging_face_model_has_the_moments_of_training(name: str, assert_moments_of_training: Any) -> None:
    build, inputs = FACES[name]
    assert_moments_of_training(build("sdpa", 0.2, 0.2).double(), inputs(2), copies=200, num_draws=8)


def test_a_hugging_face_model_can_be_drawn_by_hand() -> None:
    """Without predict: the draw itself finds out what passes its rate on in training mode only."""
    model, inputs = bert("sdpa", 0.0, 0.4).double().eval(), text(3)
    draws = predict(model, inputs, num_draws=3).draws
    with torch.no_grad():
        for index in range(3):
            with FunctionDraw(model, index=index):
                torch.testing.assert_close(model(**inputs).logits, draws[index])
    assert not torch.allclose(draws[0], draws[1])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_decoder_that_goes_on_from_its_cache_is_the_same_function(attention: str) -> None:
    """One token at a time from a cache, and the whole sequence anew: the same draw, position by position."""
    model = decoder(attention)
    ids = torch.randint(50, (2, 40), generator=torch.Generator().manual_seed(2))
    with torch.no_grad(), FunctionDraw(model, seed=1, index=2):
        whole = model(input_ids=ids, use_cache=False).logits
        cache = DynamicCache()
        parts = [model(input_ids=ids[:, :5], past_key_values=cache).logits]
        assert cache.get_seq_length() == 5  # the passes that only watch had a cache of their own
        parts += [model(input_ids=ids[:, t : t + 1], past_key_values=cache).logits for t in range(5, 40)]
        for length in (1, 7, 33):
            again = model(input_ids=ids[:, :length], use_cache=False).logits
            torch.testing.assert_close(again, whole[:, :length])
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    predicted = predict(model, {"input_ids": ids, "use_cache": False}, num_draws=3, seed=1).draws[2]
    torch.testing.assert_close(predicted, whole)


def test_text_is_generated_by_one_function() -> None:
    model = decoder("sdpa")
    ids = torch.randint(50, (2, 5), generator=torch.Generator().manual_seed(2))
    with torch.no_grad(), FunctionDraw(model, index=3):
        text = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
        by_hand = ids
        for _ in range(12):
            logits = model(input_ids=by_hand, use_cache=False).logits[:, -1]
            by_hand = torch.cat([by_hand, logits.argmax(-1, keepdim=True)], 1)
    assert torch.equal(text, by_hand)
    with torch.no_grad():
        other = [_generated(model, ids, index) for index in range(6)]
    assert any(not torch.equal(text, drawn) for drawn in other)


def _generated(model: Any, ids: Tensor, index: int) -> Tensor:
    with FunctionDraw(model, index=index):
        generated: Tensor = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
        return generated


def test_a_cache_that_is_given_to_predict_is_left_as_it_was() -> None:
    model = decoder("sdpa")
    ids = torch.randint(50, (3, 6), generator=torch.Generator().manual_seed(2))
    with torch.no_grad(), FunctionDraw(model, seed=4, index=0):
        cache = DynamicCache()
        model(input_ids=ids[:, :4], past_key_values=cache)
    given = {"input_ids": ids[:, 4:], "past_key_values": cache}
    for plan in (None, "whole model"):
        draws = predict(model, given, num_draws=4, seed=4, plan=plan).draws
        assert cache.get_seq_length() == 4
        with torch.no_grad(), FunctionDraw(model, seed=4, index=0):
            whole = model(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(draws[0], whole[:, 4:])
        assert (draws[1] != draws[0]).any()


def decoder(attention: str) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=2, vocab_size=50, n_positions=64, bos_token_id=0, eos_token_id=0,
        attn_implementation=attention,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).double().eval()
    for parameter in model.parameters():
        parameter.data.mul_(4.0 if parameter.dim() > 1 else 1.0)
    return model
