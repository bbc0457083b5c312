"""Metrics in forked children, and before a library is loaded."""

from __future__ import annotations

from tests.process.child import run

FORKED = """
import aioacl, warnings
warnings.simplefilter("ignore", DeprecationWarning)
use_library("simulator")
def with_values():
    return sorted({sample.name for metric in aioacl.metrics() for sample in metric.samples})
device = open_device(0).result()
say("parent", "aioacl_device_ready" in with_values())
pid = os.fork()
if pid == 0:
    say("child", with_values())
    say(aioacl.prometheus_text().splitlines()[2])
    os._exit(0)
os.waitpid(pid, 0)
device.close().result()
"""


def test_82_forked_child_has_only_the_metric_about_the_build() -> None:
    status, output, _ = run(FORKED)
    lines = output.splitlines()
    assert status == 0
    assert lines[:2] == ["parent True", "child ['aioacl_build_info']"]
    assert lines[2].startswith('aioacl_build_info{version="')


UNLOADED = """
import aioacl
from pathlib import Path
text = aioacl.prometheus_text()
say('library=""' in text, "libascendcl" in Path("/proc/self/maps").read_text())
say(len(list(Path("/proc/self/task").iterdir())))
"""


def test_scrape_before_the_first_open_loads_no_library_and_starts_no_thread() -> None:
    assert run(UNLOADED) == (0, "True False\n1\n", "")
