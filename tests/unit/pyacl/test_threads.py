"""Eight models of `acl` on eight threads are executed at the same time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from aioacl import simulator
from aioacl._base.late import late
from tests.kit import until_now
from tests.unit.pyacl.digits import Digits

if TYPE_CHECKING:
    import aioacl.pyacl as acl
else:
    acl = late("aioacl.pyacl")

MODELS = 8


def test_90_executions_of_eight_threads_are_in_progress_at_once() -> None:
    ready = threading.Barrier(MODELS + 1)
    results: list[list[float]] = []
    assert acl.rt.set_device(0) == 0
    models = [Digits() for _ in range(MODELS)]

    def work(model: Digits) -> None:
        assert acl.rt.set_device(0) == 0
        ready.wait()
        results.append(model.run(np.ones((1, 64), np.float32)))
        assert acl.rt.reset_device(0) == 0

    threads = [threading.Thread(target=work, args=(each,)) for each in models]
    with simulator.fault("aclmdlExecute", hang=True):
        for thread in threads:
            thread.start()
        ready.wait()
        # Each thread is inside acl.mdl.execute, and this thread runs: the calls are made without the GIL.
        at_once = until_now(lambda: simulator.hung("aclmdlExecute") == MODELS)
        simulator.release_call("aclmdlExecute")
    for thread in threads:
        thread.join()
    for model in models:
        model.close()
    assert acl.rt.reset_device(0) == 0
    assert at_once
    assert results == [results[0]] * MODELS
