"""The table of all metrics. The page "Metrics" of the reference is made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from aioacl._metrics.records import MetricType

PREFIX: Final = "aioacl_"
DEVICE: Final = ("device", "id")


class Family(NamedTuple):
    """A metric.

    Attributes:
        name: the name without the prefix.
        type: its type.
        labels: the names of its labels; those of a bucket also have `le`.
        help: what it measures.
        known_as: its names in other tools.
    """

    name: str
    type: MetricType
    labels: tuple[str, ...]
    help: str
    known_as: str = ""

    @property
    def unit(self) -> str:
        """The unit that the name ends with, or ""."""
        return next((unit for unit in ("seconds", "bytes") if self.name.endswith(f"_{unit}")), "")


def _of_device(name: str, kind: MetricType, labels: str, text: str, known_as: str = "") -> Family:
    return Family(name, kind, (*DEVICE, *labels.split()), text, known_as)


TABLE: Final = (
    Family(
        "build_info",
        "gauge",
        ("version", "library", "runtime", "soc"),
        "Always 1. The release of aioacl, the kind of the library (simulator or ascend), its release, and the chip. "
        "A value is empty until it is known: the last three after the first open.",
    ),
    _of_device(
        "device_ready",
        "gauge",
        "",
        "1 if the device admits work now (health.ready), else 0.",
        "npu_chip_info_health_status, hw.status",
    ),
    _of_device("device_state", "gauge", "state", "1 for the state of the device, 0 for the other states."),
    _of_device("device_generation", "gauge", "", "The generation, which each reset raises."),
    _of_device(
        "resets_total",
        "counter",
        "outcome cause",
        "Resets that have ended. outcome: open, quarantined. cause: fault (a supervisor, or after a device fault), "
        "request (a caller), foreign (other code).",
    ),
    _of_device(
        "reset_duration_seconds",
        "histogram",
        "outcome cause",
        "How long the resets took, with the hooks before them and the drain.",
    ),
    _of_device(
        "faults_total",
        "counter",
        "code action",
        "Failed tasks and device faults, by ACL's code and the action that it needs.",
        "DCGM_FI_DEV_XID_ERRORS, npu_chip_info_error_code, hw.errors",
    ),
    _of_device(
        "stuck_seconds", "gauge", "", "How long the longest stuck call has been inside C; 0 if none is stuck."
    ),
    _of_device("calls_in_c", "gauge", "kind", "Calls inside C. kind: enqueue, wait, lifetime."),
    _of_device(
        "awaits_in_flight",
        "gauge",
        "kind",
        "Waits that have not ended. kind: stream (tickets, events, streams), model (calls of models). A cancelled "
        "await counts until its work ends.",
        "vllm:num_requests_running",
    ),
    _of_device(
        "await_duration_seconds",
        "histogram",
        "kind outcome",
        "From the begin of a wait until its work has ended. outcome: done, failed, reset. A wait whose work is done "
        "when it begins is not counted.",
    ),
    _of_device(
        "memory_bytes",
        "gauge",
        "kind",
        "Memory that this process has allocated. kind: weights, workspace, slots (of loaded models), buffers, cached, "
        "all of the device; pinned is memory of the host.",
        "DCGM_FI_DEV_FB_USED",
    ),
    _of_device("model_loads_total", "counter", "model", "Loads of the model, also those after a reset."),
    _of_device("model_load_duration_seconds", "histogram", "model", "How long these loads took."),
    _of_device(
        "model_abandoned_total",
        "counter",
        "model",
        "Models that a reset or close has ended without an unload.",
    ),
    _of_device(
        "model_requests_total",
        "counter",
        "model outcome",
        "Calls of the model. outcome: done, failed, reset, cancelled (also by a time limit), refused (no free slot).",
        "nv_inference_request_success",
    ),
    _of_device(
        "model_executions_total",
        "counter",
        "model outcome",
        "Executions of the model. outcome: done, failed, reset, cancelled (the caller had gone before the enqueue).",
        "nv_inference_exec_count",
    ),
    _of_device(
        "model_rows_total",
        "counter",
        "model outcome",
        "The rows of these executions without padding; 1 for each call of a model without batch sizes.",
        "nv_inference_count",
    ),
    _of_device(
        "model_slot_wait_seconds",
        "histogram",
        "model",
        "How long a call waited for a slot.",
        "nv_inference_queue_duration_us",
    ),
    _of_device(
        "model_execution_seconds",
        "histogram",
        "model",
        "From the enqueue of an execution until its results are in the memory of the host.",
        "nv_inference_compute_infer_duration_us",
    ),
    Family(
        "batch_waiting_rows",
        "gauge",
        ("model",),
        "Rows that wait in the batchers of the model.",
        "nv_inference_pending_request_count",
    ),
    Family(
        "batch_wait_seconds",
        "histogram",
        ("model",),
        "From the arrival of an item until its first execution begins.",
        "serve_batch_wait_time_ms",
    ),
    Family(
        "batch_rows",
        "histogram",
        ("model",),
        "The rows of an execution. The buckets are the gears.",
        "serve_actual_batch_size",
    ),
    Family("batch_padded_rows_total", "counter", ("model",), "Rows of padding."),
    Family(
        "batch_repeats_total",
        "counter",
        ("model", "cause"),
        "Items that ran once more. cause: task (their batch was divided), fault (they run alone after a device fault), "
        "reset.",
    ),
    Family(
        "batch_items_total",
        "counter",
        ("model", "outcome"),
        "Items that have ended. outcome: done, failed, cancelled, expired, refused.",
    ),
    _of_device(
        "events_missed_total", "counter", "", "Events that slow listeners of device.events() have missed."
    ),
    Family(
        "trace_overwritten_total",
        "counter",
        (),
        "Records that traces of aioacl.trace() lack: later records replaced them before they were taken, or the trace "
        "was too long.",
    ),
)
