"""Reading what the profiler prints, and what is said where there is nothing to profile."""

import pytest

from lab.device import ON_CPU
from lab.measure import counters
from lab.measure.recipe import MeasurementRefused

PRINTED = """==PROF== Connected to process 7
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","matmul_kernel","dram__bytes_read.sum","byte","2,323,331,328"
"0","7","matmul_kernel","gpu__time_duration.sum","ns","1,472,896"
"0","7","matmul_kernel","lts__t_sector_hit_rate.pct","%","65.99"
"0","7","matmul_kernel","lts__t_sectors_op_read.sum","sector","1,000"
"1","7","matmul_kernel","lts__t_sector_hit_rate.pct","%","67.27"
"""


def test_launches_are_told_apart():
    first, second = counters.launches_in(PRINTED)
    assert first == {
        "memory_read_bytes": "2.32333e+09",
        "nanoseconds": "1.4729e+06",
        "l2_hit_percent": "65.99",
        "l2_read_bytes": "32000",
    }
    assert second == {"l2_hit_percent": "67.27"}


def test_nothing_printed_is_no_launch():
    assert counters.launches_in("==ERROR== no permission") == []


@pytest.mark.skipif(not ON_CPU, reason="about a machine without a GPU")
def test_without_a_gpu_it_says_so(tmp_path):
    with pytest.raises(MeasurementRefused, match="no GPU here"):
        counters.record("matmul", ["triton"], "M=1,N=1,K=1", "bf16", tmp_path)


def test_what_is_recorded_can_be_read(tmp_path):
    folder = tmp_path / "h200" / "counters"
    folder.mkdir(parents=True)
    (folder / "matmul.csv").write_text("op,variant,l2_hit_percent\nmatmul,grouped,67.27\n")
    assert counters.counters("matmul", folder=tmp_path) == [
        {"op": "matmul", "variant": "grouped", "l2_hit_percent": 67.27}
    ]
