"""What the C library does with freed memory: counted in a process of its own, since the setting is the process's."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, resource, sys
import torch
from lrdp.training import keep_freed_blocks, return_large_blocks

settings = {"keep": keep_freed_blocks, "return": return_large_blocks}
done = [settings[name]() for name in sys.argv[1:]]
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
def step():
    torch.ones(16 << 20).add_(1.0)  # 64 MiB, and free again
for _ in range(10):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
held = resident()
scratch = torch.ones(16 << 20)
print(json.dumps({"done": done, "faults": faults, "held": resident() - held}))
"""


def measured(*settings):
    out = subprocess.run([sys.executable, "-c", SCRIPT, *settings], capture_output=True, text=True, check=True).stdout
    found = json.loads(out)
    assert all(found["done"])
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_kept_blocks_cost_no_page_faults_and_returned_ones_no_memory():
    kept, returned, default = measured("keep"), measured("return"), measured()
    assert 10 * kept["faults"] + 50 < default["faults"], "without it the system hands out every page anew"
    assert kept["held"] < 8 << 20, "the block that was freed is used again"
    assert returned["held"] > 56 << 20, "the block that was freed was gone"
    assert measured("keep", "return")["held"] > 56 << 20, "the last word counts"
