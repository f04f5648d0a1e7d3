"""The roof: hardware facts that hang together, and the times they predict."""

import csv
from dataclasses import replace

import pytest

from lab.device import HARDWARE, gpu_named
from lab.measure.roofline import arithmetic_ms, balance, memory_ms, predicted_ms, roof_share

H200 = gpu_named("h200")


def hardware_rows() -> list[dict[str, str]]:
    with HARDWARE.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_hardware_row_names_its_source():
    assert all(row["source"] for row in hardware_rows())


@pytest.mark.parametrize("key", ["t4", "a100", "h100", "h200", "b200"])
def test_every_gpu_is_complete(key):
    gpu = gpu_named(key)
    assert gpu.arch.startswith("sm_")
    assert gpu.sms >= 40 and gpu.l2_bytes >= 4 * 2**20 and gpu.registers == 65536
    assert 1e11 < gpu.bandwidth < 1e13
    peaks = gpu.peak_flops
    # Halving the width of a number at least doubles the rate, never less.
    assert peaks["fp16"] > peaks["fp32"]
    assert "fp8" not in peaks or peaks["fp8"] >= 1.9 * peaks["fp16"]


def test_unknown_gpu_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="h200"):
        gpu_named("h999")


def test_vector_add_is_predicted_from_its_bytes():
    n = 2**28
    assert predicted_ms(3 * 4 * n, n, "fp32", H200) == pytest.approx(3 * 4 * n / 4.8e12 * 1e3)


def test_matmul_is_predicted_from_its_flops():
    n = 8192
    assert predicted_ms(3 * 2 * n**2, 2 * n**3, "bf16", H200) == pytest.approx(2 * n**3 / 989.4e12 * 1e3)


def test_memory_and_arithmetic_meet_at_the_balance():
    bytes_moved = 1e9
    flops = balance("bf16", H200) * bytes_moved
    assert memory_ms(bytes_moved, H200) == pytest.approx(arithmetic_ms(flops, "bf16", H200))


def test_a_gpu_without_matrix_units_for_a_dtype_computes_in_fp32():
    t4 = gpu_named("t4")
    assert arithmetic_ms(1e12, "bf16", t4) == arithmetic_ms(1e12, "fp32", t4)
    with pytest.raises(ValueError, match="bf16.*T4.*fp16"):
        balance("bf16", t4)


def test_a_gpu_without_known_peaks_is_limited_by_memory_alone():
    unknown = replace(H200, peak_flops={})
    assert predicted_ms(4.8e9, 1e15, "bf16", unknown) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no peak rate"):
        balance("fp32", unknown)


def test_the_roof_is_the_slower_of_copy_and_arithmetic():
    assert roof_share(median_ms=2.0, copy_ms=1.0, flops=0, dtype="fp32", gpu=H200) == 0.5
    assert roof_share(median_ms=2.0, copy_ms=1.0, flops=1.5 * 989.4e9, dtype="bf16", gpu=H200) == pytest.approx(0.75)
