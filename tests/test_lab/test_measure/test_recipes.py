"""Every recipe at sizes that a CPU can do: what `tile measure` would refuse on a GPU is found here first."""

import importlib.util
import inspect
from functools import cache

import pytest
import torch

from lab.device import DEVICE, ON_CPU
from lab.measure.recipe import MeasurementRefused, Recipe, TorchCompiled, Workload
from lab.measure.record import checked_variants
from lab.measure.rows import MEASUREMENTS

STEMS = sorted(path.stem for path in MEASUREMENTS.glob("*.py"))

# The most that a size may be; sizes without a limit stay what they are.
LIMITS = {"B": 1, "H": 2, "KV": 1, "M": 48, "N": 80, "K": 64}
LIMITS_OF = {
    **dict.fromkeys(["vector_add", "dropout", "gelu", "gelu_tanh"], {"N": 2**14}),
    **dict.fromkeys(["softmax", "softmax_gradient"], {"M": 2}),
    "bias_gelu": {"M": 4},
}
# Left out, and why; so are variants that torch.compile builds, which takes it seconds.
LEFT_OUT = {
    "sdpa_flash": "PyTorch has it on a GPU only",
    "sdpa_cudnn": "PyTorch has it on a GPU only",
    "flex": "torch.compile builds it",
    "persistent of matmul": "it asks how many multiprocessors the GPU has",
}
NOT_ON_A_CPU = {
    ("matmul", "fp8"): "PyTorch multiplies 8-bit floats on a GPU only",
    ("matmul", "tf32"): "PyTorch rounds float32 to TF32 on a GPU only, and its error is the measure of ours",
}


@cache
def module_of(stem: str):
    spec = importlib.util.spec_from_file_location(f"recipe_{stem}", MEASUREMENTS / f"{stem}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def smaller(stem: str, workload: Workload) -> Workload:
    """Return a workload made like another one, with smaller sizes.

    The function that makes workloads has the sizes and the dtype for its parameters, by the names that rows have; or
    one, `size`, for all.
    """
    limits = LIMITS_OF.get(stem, LIMITS)
    sizes = {name: at_most(limits.get(name, size), size) for name, size in workload.sizes.items()}
    known = {name.lower(): size for name, size in sizes.items()}
    known |= {"dtype": workload.dtype, "size": min(sizes.values()), "causal": bool(sizes.get("causal"))}
    maker = getattr(module_of(stem), workload.make.__qualname__.split(".")[0])
    parameters = inspect.signature(maker).parameters.values()
    missing = [p.name for p in parameters if p.name.lower() not in known and p.default is inspect.Parameter.empty]
    assert not missing, f"{maker.__name__} in {stem}.py: give its parameters the names of sizes, not {missing}"
    return maker(**{p.name: known[p.name.lower()] for p in parameters if p.name.lower() in known})


def at_most(limit: int, size: int) -> int:
    """Return a smaller size that leaves the same remainder by 16: kernels split what 16 does not divide."""
    if size <= limit or limit < 16:
        return min(size, limit)
    return limit - (limit - size) % 16


def small_workloads(stem: str) -> list[Workload]:
    """Return one workload for each small shape and dtype of a recipe."""
    found = {}
    for workload in module_of(stem).RECIPE.workloads:
        if (stem, workload.dtype) not in NOT_ON_A_CPU:
            small = smaller(stem, workload)
            found.setdefault((small.shape, small.dtype), small)
    return list(found.values())


def without_what_needs_a_gpu(stem: str) -> Recipe:
    """Return a recipe with the variants that a CPU has."""
    recipe = module_of(stem).RECIPE
    left = {
        name: variant
        for name, variant in recipe.variants.items()
        if not isinstance(variant, TorchCompiled) and not {name, f"{name} of {stem}"} & set(LEFT_OUT)
    }
    return Recipe(**{**vars(recipe), "variants": left})


@pytest.mark.skipif(not ON_CPU, reason="on a GPU `tile measure` itself says whether it can")
@pytest.mark.parametrize("stem", STEMS)
def test_a_recipe_can_be_recorded(stem):
    """Every variant is within the bounds of `tile measure`, or says why it is none of that size."""
    recipe, said, checked = without_what_needs_a_gpu(stem), [], set()
    before = torch.get_float32_matmul_precision()
    try:
        for workload in small_workloads(stem):
            inputs = workload.make(torch.Generator(DEVICE).manual_seed(0))
            checked |= set(checked_variants(recipe, workload, inputs, said.append))
            assert recipe.bytes(*inputs) > 0 and recipe.flops(*inputs) > 0
    finally:
        torch.set_float32_matmul_precision(before)
    assert {"torch", "triton"} <= checked


@pytest.mark.parametrize("stem", STEMS)
def test_calls_name_variants(stem):
    recipe = module_of(stem).RECIPE
    assert set(recipe.calls) <= set(recipe.variants)


def test_the_rung_of_sixteen_bits_is_none_of_thirty_two():
    """`tile measure gelu` refused it at 2^28 elements: a check of any size would have."""
    module, recipe, said = module_of("gelu"), without_what_needs_a_gpu("gelu"), []
    workload = module.one_vector(2**12, "fp32")
    inputs = workload.make(torch.Generator(DEVICE).manual_seed(0))
    assert "polynomial" not in checked_variants(recipe, workload, inputs, said.append)
    assert any("too little for 32" in line for line in said)
    recipe.variants["polynomial"] = module.rung(module.gelu_polynomial)
    with pytest.raises(MeasurementRefused, match="polynomial at N=4096 fp32 is off by .* in the typical element"):
        checked_variants(recipe, workload, inputs, said.append)
