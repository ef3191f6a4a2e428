"""Products by the fast kernel against torch's own, on whatever machine this is."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from bayesdrop.functional import products
from bayesdrop.functional.products import ONEDNN, batched_matmul, linear, matmul
from bayesdrop.layers import BernoulliDropout

SHAPES = [((300, 200), 100), ((5, 60, 200), 100), ((4096, 50), 10), ((2, 3, 400, 33), 17), ((1, 784), 2000)]


@pytest.fixture(params=["as this machine has it", "by oneDNN"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kernels on every machine that has both: the numbers must not depend on who multiplies."""
    if request.param == "by oneDNN":
        if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
            pytest.skip("torch has no oneDNN here")
        monkeypatch.setattr(products, "ONEDNN", True)


def made(shape: tuple[int, ...], outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator)
    weight, bias = (
        torch.randn(outputs, shape[-1], generator=generator),
        torch.randn(outputs, generator=generator),
    )
    return x, weight, bias


def close(ours: Tensor, truth: Tensor) -> bool:
    # K products of unit size are off by sqrt(K) roundings each; their sum is about sqrt(K) in size.
    return bool((ours.double() - truth).abs().max() <= 5e-6 * (1 + truth.abs().max()))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(("shape", "outputs"), SHAPES)
@pytest.mark.parametrize("relu", [False, True])
def test_linear_is_the_product_in_double_precision(shape: tuple[int, ...], outputs: int, relu: bool) -> None:
    x, weight, bias = made(shape, outputs)
    truth = F.linear(x.double(), weight.double(), bias.double())
    truth = truth.relu() if relu else truth
    with torch.no_grad():
        assert close(linear(x, weight, bias, relu=relu), truth)
        turned = x.transpose(-1, -2).contiguous().transpose(-1, -2)
        assert close(linear(turned, weight.t().contiguous().t(), bias, relu=relu), truth)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(("rows", "inner", "columns"), [(300, 200, 100), (17, 4097, 33), (460, 705, 256)])
def test_matmul_is_the_product_in_double_precision(rows: int, inner: int, columns: int) -> None:
    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    with torch.no_grad():
        assert close(matmul(a, b), a.double() @ b.double())
        assert close(matmul(a.t().contiguous().t(), b.t().contiguous().t()), a.double() @ b.double())


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("shape", [(3, 128, 200, 192), (2, 5, 7, 3), (1, 4, 600_000, 1)])
@pytest.mark.parametrize("biased", [False, True])
def test_products_of_a_batch_are_those_in_double_precision(
    shape: tuple[int, int, int, int], biased: bool
) -> None:
    stack, rows, inner, columns = shape
    a, b = torch.randn(stack, rows, inner), torch.randn(stack, inner, columns)
    bias = torch.randn(stack, 1, columns) if biased else None
    truth = a.double() @ b.double() + (0 if bias is None else bias.double())

    def turned(x: Tensor) -> Tensor:
        return x.transpose(1, 2).contiguous().transpose(1, 2)

    with torch.no_grad():
        for left, right in ((a, b), (turned(a), turned(b))):
            for out in (torch.empty(stack, rows, columns), turned(torch.empty(stack, rows, columns))):
                assert batched_matmul(left, right, bias=bias, out=out) is out
                assert close(out, truth)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(("shape", "outputs"), SHAPES)
@pytest.mark.parametrize("reduce", ["sum", "square"])
def test_gradients_are_those_of_torch(shape: tuple[int, ...], outputs: int, reduce: str) -> None:
    tensors = [tensor.requires_grad_() for tensor in made(shape, outputs)]
    doubles = [tensor.detach().double().requires_grad_() for tensor in tensors]
    # The gradient of a sum is one number, stretched over all elements.
    for function, values in ((linear, tensors), (F.linear, doubles)):
        out = function(*values)
        (out.sum() if reduce == "sum" else out.square().sum()).backward()
    for ours, truth in zip(tensors, doubles, strict=True):
        assert close(ours.grad, truth.grad)


@pytest.mark.usefixtures("kernel")
def test_gradients_have_gradients() -> None:
    tensors = made((300, 200), 100)

    def penalty(function: Callable[..., Tensor], dtype: torch.dtype) -> Tensor:
        x, weight, bias = (tensor.to(dtype).requires_grad_() for tensor in tensors)
        (grad,) = torch.autograd.grad((function(x, weight, bias) / 14).tanh().sum(), x, create_graph=True)
        (again,) = torch.autograd.grad(grad.square().sum(), weight)
        return again

    assert close(penalty(linear, torch.float32), penalty(F.linear, torch.float64))


@pytest.mark.usefixtures("kernel")
def test_what_is_not_finite_stays_so() -> None:
    x, weight, _ = made((300, 200), 100)
    x[3, 5], weight[7, 9] = float("nan"), float("inf")
    with torch.no_grad():
        ours, truth = linear(x, weight), F.linear(x, weight)
    assert torch.equal(ours.isnan(), truth.isnan())
    assert torch.equal(ours.isinf(), truth.isinf())


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.jit")
@pytest.mark.usefixtures("kernel")
def test_transforms_modes_and_other_numbers_are_torchs_own() -> None:
    x, weight, bias = made((300, 200), 100)
    stacked = torch.stack([x, 2 * x])
    truth = F.linear(x.double(), weight.double(), bias.double())
    assert close(torch.vmap(lambda a: linear(a, weight, bias))(stacked)[0], truth)
    with forward_ad.dual_level():
        value, tangent = forward_ad.unpack_dual(linear(forward_ad.make_dual(x, x), weight, bias))
    assert close(value, truth)
    assert close(tangent, F.linear(x.double(), weight.double()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(x, weight, bias).dtype == torch.bfloat16
    assert linear(x.double(), weight.double(), bias.double()).dtype == torch.float64
    with pytest.raises(RuntimeError):
        linear(x, weight[:, :-1], bias)


@pytest.mark.usefixtures("kernel")
def test_the_same_call_gives_the_same_bits() -> None:
    x, weight, bias = made((300, 200), 100)
    with torch.no_grad():
        assert torch.equal(linear(x, weight, bias), linear(x.clone(), weight.clone(), bias.clone()))


def test_the_choice_is_the_machines() -> None:
    assert ONEDNN is products._prefers_onednn()
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        assert not ONEDNN


@pytest.mark.usefixtures("kernel")
def test_a_layer_trains_as_by_torchs_own_product() -> None:
    torch.manual_seed(0)
    layer = BernoulliDropout(nn.Linear(200, 100), p=1e-9)  # no unit is dropped
    x = torch.randn(300, 200)
    found = torch.autograd.grad(layer.train()(x).square().sum(), list(layer.parameters()))
    truth = torch.autograd.grad(layer.layer(x).square().sum(), list(layer.parameters()))
    for ours, theirs in zip(found, truth, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-2)


def test_hooks_on_all_modules_see_the_wrapped_layer() -> None:
    layer = BernoulliDropout(nn.Linear(20, 10), p=0.1).train()
    seen: list[nn.Module] = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *rest: seen.append(module))
    try:
        layer(torch.randn(3, 20))
    finally:
        handle.remove()
    assert layer.layer in seen


def test_a_forward_of_the_wrapped_layers_own_is_called() -> None:
    layer = BernoulliDropout(nn.Linear(20, 10), p=0.1).train()
    layer.layer.forward = lambda x: x[:, :10] * 0 + 7  # type: ignore[method-assign]
    assert bool((layer(torch.randn(3, 20)) == 7).all())
