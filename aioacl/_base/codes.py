"""The table of ACL's codes: the name and family of each, and what to do about it.

The errors and all code that counts or prints codes use this table. A number keeps its meaning in every release of CANN;
later releases only add numbers. A code that is not in the table is classified by its range: 1xxxxx is an error of the
caller, 2xxxxx of a resource, 3xxxxx of the service, 5xxxxx of the device or its software.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeVar

_Key = TypeVar("_Key", int, str)
_Value = TypeVar("_Value")

Action = Literal["retry", "new_stream", "reset", "repair", "replace", "fix_code"]
"""The remedy after an error.

retry: repeat the operation, perhaps later. new_stream: one task failed and the device works; continue with a new
stream, or renew the failed stream. reset: force-reset the device first. repair: first repair the cause outside the
program, such as damaged memory, a link or a driver. replace: take the card out of service. fix_code: change the program
or its environment.
"""

DEVICE_ACTIONS: Final[frozenset[Action]] = frozenset({"reset", "repair", "replace"})
"""The actions of errors that concern the whole device: the device is not ready until a reset."""

RETRYABLE_ACTIONS: Final[frozenset[Action]] = frozenset({"retry", "new_stream"})
"""The actions after which the same work may succeed at once."""


class Family(StrEnum):
    """The kinds of errors that a program handles differently."""

    PARAMETER = "parameter"
    CONTEXT = "context"
    OUT_OF_MEMORY = "out_of_memory"
    EXHAUSTED = "exhausted"
    QUEUE_FULL = "queue_full"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    TASK_TIMEOUT = "task_timeout"
    DEVICE_FAULT = "device_fault"
    NOT_SUPPORTED = "not_supported"
    OTHER = "other"


class Code(NamedTuple):
    """One code of ACL. If `hint` is empty, the hint of the family's error class applies.

    `source` names the evidence that the code reports one failed task, and that the runtime continues after the failure.
    Each code with the action new_stream has a source.
    """

    code: int
    name: str
    family: Family
    action: Action
    hint: str = ""
    source: str = ""


_ROWS: Final[tuple[tuple[int, str, Family, Action], ...]] = (
    # Success
    (0, "ACL_SUCCESS", Family.OTHER, "fix_code"),
    # User: the ACL layer
    (100000, "ACL_ERROR_INVALID_PARAM", Family.PARAMETER, "fix_code"),
    (100001, "ACL_ERROR_UNINITIALIZE", Family.OTHER, "fix_code"),
    (100002, "ACL_ERROR_REPEAT_INITIALIZE", Family.OTHER, "fix_code"),
    (100003, "ACL_ERROR_INVALID_FILE", Family.PARAMETER, "fix_code"),
    (100004, "ACL_ERROR_WRITE_FILE", Family.PARAMETER, "fix_code"),
    (100005, "ACL_ERROR_INVALID_FILE_SIZE", Family.PARAMETER, "fix_code"),
    (100006, "ACL_ERROR_PARSE_FILE", Family.PARAMETER, "fix_code"),
    (100007, "ACL_ERROR_FILE_MISSING_ATTR", Family.PARAMETER, "fix_code"),
    (100008, "ACL_ERROR_FILE_ATTR_INVALID", Family.PARAMETER, "fix_code"),
    (100009, "ACL_ERROR_INVALID_DUMP_CONFIG", Family.PARAMETER, "fix_code"),
    (100010, "ACL_ERROR_INVALID_PROFILING_CONFIG", Family.PARAMETER, "fix_code"),
    (100011, "ACL_ERROR_INVALID_MODEL_ID", Family.PARAMETER, "fix_code"),
    (100012, "ACL_ERROR_DESERIALIZE_MODEL", Family.PARAMETER, "fix_code"),
    (100013, "ACL_ERROR_PARSE_MODEL", Family.PARAMETER, "fix_code"),
    (100014, "ACL_ERROR_READ_MODEL_FAILURE", Family.PARAMETER, "fix_code"),
    (100015, "ACL_ERROR_MODEL_SIZE_INVALID", Family.PARAMETER, "fix_code"),
    (100016, "ACL_ERROR_MODEL_MISSING_ATTR", Family.PARAMETER, "fix_code"),
    (100017, "ACL_ERROR_MODEL_INPUT_NOT_MATCH", Family.PARAMETER, "fix_code"),
    (100018, "ACL_ERROR_MODEL_OUTPUT_NOT_MATCH", Family.PARAMETER, "fix_code"),
    (100019, "ACL_ERROR_MODEL_NOT_DYNAMIC", Family.PARAMETER, "fix_code"),
    (100020, "ACL_ERROR_OP_TYPE_NOT_MATCH", Family.PARAMETER, "fix_code"),
    (100021, "ACL_ERROR_OP_INPUT_NOT_MATCH", Family.PARAMETER, "fix_code"),
    (100022, "ACL_ERROR_OP_OUTPUT_NOT_MATCH", Family.PARAMETER, "fix_code"),
    (100023, "ACL_ERROR_OP_ATTR_NOT_MATCH", Family.PARAMETER, "fix_code"),
    (100024, "ACL_ERROR_OP_NOT_FOUND", Family.PARAMETER, "fix_code"),
    (100025, "ACL_ERROR_OP_LOAD_FAILED", Family.PARAMETER, "fix_code"),
    (100026, "ACL_ERROR_UNSUPPORTED_DATA_TYPE", Family.PARAMETER, "fix_code"),
    (100027, "ACL_ERROR_FORMAT_NOT_MATCH", Family.PARAMETER, "fix_code"),
    (100028, "ACL_ERROR_BIN_SELECTOR_NOT_REGISTERED", Family.PARAMETER, "fix_code"),
    (100029, "ACL_ERROR_KERNEL_NOT_FOUND", Family.PARAMETER, "fix_code"),
    (100030, "ACL_ERROR_BIN_SELECTOR_ALREADY_REGISTERED", Family.PARAMETER, "fix_code"),
    (100031, "ACL_ERROR_KERNEL_ALREADY_REGISTERED", Family.PARAMETER, "fix_code"),
    (100032, "ACL_ERROR_INVALID_QUEUE_ID", Family.PARAMETER, "fix_code"),
    (100033, "ACL_ERROR_REPEAT_SUBSCRIBE", Family.PARAMETER, "fix_code"),
    (100034, "ACL_ERROR_STREAM_NOT_SUBSCRIBE", Family.PARAMETER, "fix_code"),
    (100035, "ACL_ERROR_THREAD_NOT_SUBSCRIBE", Family.PARAMETER, "fix_code"),
    (100036, "ACL_ERROR_WAIT_CALLBACK_TIMEOUT", Family.TIMEOUT, "retry"),
    (100037, "ACL_ERROR_REPEAT_FINALIZE", Family.OTHER, "fix_code"),
    (100038, "ACL_ERROR_NOT_STATIC_AIPP", Family.PARAMETER, "fix_code"),
    (100039, "ACL_ERROR_COMPILING_STUB_MODE", Family.OTHER, "fix_code"),
    (100040, "ACL_ERROR_GROUP_NOT_SET", Family.PARAMETER, "fix_code"),
    (100041, "ACL_ERROR_GROUP_NOT_CREATE", Family.PARAMETER, "fix_code"),
    (100042, "ACL_ERROR_PROF_ALREADY_RUN", Family.OTHER, "fix_code"),
    (100043, "ACL_ERROR_PROF_NOT_RUN", Family.OTHER, "fix_code"),
    (100044, "ACL_ERROR_DUMP_ALREADY_RUN", Family.OTHER, "fix_code"),
    (100045, "ACL_ERROR_DUMP_NOT_RUN", Family.OTHER, "fix_code"),
    # User: the runtime
    (107000, "ACL_ERROR_RT_PARAM_INVALID", Family.PARAMETER, "fix_code"),
    (107001, "ACL_ERROR_RT_INVALID_DEVICEID", Family.PARAMETER, "fix_code"),
    (107002, "ACL_ERROR_RT_CONTEXT_NULL", Family.CONTEXT, "fix_code"),
    (107003, "ACL_ERROR_RT_STREAM_CONTEXT", Family.CONTEXT, "fix_code"),
    (107004, "ACL_ERROR_RT_MODEL_CONTEXT", Family.CONTEXT, "fix_code"),
    (107005, "ACL_ERROR_RT_STREAM_MODEL", Family.PARAMETER, "fix_code"),
    (107006, "ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID", Family.PARAMETER, "fix_code"),
    (107007, "ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL", Family.PARAMETER, "fix_code"),
    (107008, "ACL_ERROR_RT_ADDR_UNALIGNED", Family.PARAMETER, "fix_code"),
    (107009, "ACL_ERROR_RT_FILE_OPEN", Family.PARAMETER, "fix_code"),
    (107010, "ACL_ERROR_RT_FILE_WRITE", Family.PARAMETER, "fix_code"),
    (107011, "ACL_ERROR_RT_STREAM_SUBSCRIBE", Family.PARAMETER, "fix_code"),
    (107012, "ACL_ERROR_RT_THREAD_SUBSCRIBE", Family.PARAMETER, "fix_code"),
    (107013, "ACL_ERROR_RT_GROUP_NOT_SET", Family.PARAMETER, "fix_code"),
    (107014, "ACL_ERROR_RT_GROUP_NOT_CREATE", Family.PARAMETER, "fix_code"),
    (107015, "ACL_ERROR_RT_STREAM_NO_CB_REG", Family.PARAMETER, "fix_code"),
    (107016, "ACL_ERROR_RT_INVALID_MEMORY_TYPE", Family.PARAMETER, "fix_code"),
    (107017, "ACL_ERROR_RT_INVALID_HANDLE", Family.CONTEXT, "fix_code"),
    (107018, "ACL_ERROR_RT_INVALID_MALLOC_TYPE", Family.PARAMETER, "fix_code"),
    (107019, "ACL_ERROR_RT_WAIT_TIMEOUT", Family.TIMEOUT, "retry"),
    (107020, "ACL_ERROR_RT_TASK_TIMEOUT", Family.TASK_TIMEOUT, "new_stream"),
    (107021, "ACL_ERROR_RT_SYSPARAMOPT_NOT_SET", Family.OTHER, "fix_code"),
    (107022, "ACL_ERROR_RT_DEVICE_TASK_ABORT", Family.ABORTED, "retry"),
    (107023, "ACL_ERROR_RT_STREAM_ABORT", Family.ABORTED, "retry"),
    (107024, "ACL_ERROR_RT_CAPTURE_DEPENDENCY", Family.PARAMETER, "fix_code"),
    (107025, "ACL_ERROR_RT_STREAM_UNJOINED", Family.PARAMETER, "fix_code"),
    (107026, "ACL_ERROR_RT_MODEL_CAPTURED", Family.PARAMETER, "fix_code"),
    (107027, "ACL_ERROR_RT_STREAM_CAPTURED", Family.PARAMETER, "fix_code"),
    (107028, "ACL_ERROR_RT_EVENT_CAPTURED", Family.PARAMETER, "fix_code"),
    (107029, "ACL_ERROR_RT_STREAM_NOT_CAPTURED", Family.PARAMETER, "fix_code"),
    (107030, "ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT", Family.PARAMETER, "fix_code"),
    (107031, "ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT", Family.PARAMETER, "fix_code"),
    (107032, "ACL_ERROR_STREAM_CAPTURE_CONFLICT", Family.PARAMETER, "fix_code"),
    (107033, "ACL_ERROR_STREAM_TASK_GROUP_STATUS", Family.PARAMETER, "fix_code"),
    (107034, "ACL_ERROR_STREAM_TASK_GROUP_INTR", Family.PARAMETER, "fix_code"),
    (107035, "ACL_ERROR_RT_TASK_ABORT_STOP", Family.ABORTED, "reset"),
    (107036, "ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED", Family.PARAMETER, "fix_code"),
    (107037, "ACL_ERROR_RT_MODEL_RUNNING", Family.OTHER, "retry"),
    (107038, "ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD", Family.PARAMETER, "fix_code"),
    (107039, "ACL_ERROR_RT_INSUFFICIENT_INPUT_ARRAY", Family.PARAMETER, "fix_code"),
    (107040, "ACL_ERROR_RT_MODEL_UPDATE_FAILED", Family.PARAMETER, "fix_code"),
    (107041, "ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC", Family.PARAMETER, "fix_code"),
    (107042, "ACL_ERROR_RT_SYMBOL_NOT_FOUND", Family.PARAMETER, "fix_code"),
    (107043, "ACL_ERROR_RT_INVALID_SYMBOL", Family.PARAMETER, "fix_code"),
    (107044, "ACL_ERROR_RT_INVALID_DEVICE_FUNCTION", Family.PARAMETER, "fix_code"),
    (107045, "ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING", Family.PARAMETER, "fix_code"),
    # User: the graph engine
    (145000, "ACL_ERROR_GE_PARAM_INVALID", Family.PARAMETER, "fix_code"),
    (145001, "ACL_ERROR_GE_EXEC_NOT_INIT", Family.OTHER, "fix_code"),
    (145002, "ACL_ERROR_GE_EXEC_MODEL_PATH_INVALID", Family.PARAMETER, "fix_code"),
    (145003, "ACL_ERROR_GE_EXEC_MODEL_ID_INVALID", Family.PARAMETER, "fix_code"),
    (145006, "ACL_ERROR_GE_EXEC_MODEL_DATA_SIZE_INVALID", Family.PARAMETER, "fix_code"),
    (145007, "ACL_ERROR_GE_EXEC_MODEL_ADDR_INVALID", Family.PARAMETER, "fix_code"),
    (145008, "ACL_ERROR_GE_EXEC_MODEL_QUEUE_ID_INVALID", Family.PARAMETER, "fix_code"),
    (145009, "ACL_ERROR_GE_EXEC_LOAD_MODEL_REPEATED", Family.PARAMETER, "fix_code"),
    (145011, "ACL_ERROR_GE_DYNAMIC_INPUT_ADDR_INVALID", Family.PARAMETER, "fix_code"),
    (145012, "ACL_ERROR_GE_DYNAMIC_INPUT_LENGTH_INVALID", Family.PARAMETER, "fix_code"),
    (145013, "ACL_ERROR_GE_DYNAMIC_BATCH_SIZE_INVALID", Family.PARAMETER, "fix_code"),
    (145014, "ACL_ERROR_GE_AIPP_BATCH_EMPTY", Family.PARAMETER, "fix_code"),
    (145015, "ACL_ERROR_GE_AIPP_NOT_EXIST", Family.PARAMETER, "fix_code"),
    (145016, "ACL_ERROR_GE_AIPP_MODE_INVALID", Family.PARAMETER, "fix_code"),
    (145017, "ACL_ERROR_GE_OP_TASK_TYPE_INVALID", Family.PARAMETER, "fix_code"),
    (145018, "ACL_ERROR_GE_OP_KERNEL_TYPE_INVALID", Family.PARAMETER, "fix_code"),
    (145019, "ACL_ERROR_GE_PLGMGR_PATH_INVALID", Family.PARAMETER, "fix_code"),
    (145020, "ACL_ERROR_GE_FORMAT_INVALID", Family.PARAMETER, "fix_code"),
    (145021, "ACL_ERROR_GE_SHAPE_INVALID", Family.PARAMETER, "fix_code"),
    (145022, "ACL_ERROR_GE_DATATYPE_INVALID", Family.PARAMETER, "fix_code"),
    # User: the ACL layer, continued
    (148046, "ACL_ERROR_PROF_REPEAT_SUBSCRIBE", Family.PARAMETER, "fix_code"),
    (148047, "ACL_ERROR_PROF_API_CONFLICT", Family.PARAMETER, "fix_code"),
    (148048, "ACL_ERROR_INVALID_MAX_OPQUEUE_NUM_CONFIG", Family.PARAMETER, "fix_code"),
    (148049, "ACL_ERROR_INVALID_OPP_PATH", Family.PARAMETER, "fix_code"),
    (148050, "ACL_ERROR_OP_UNSUPPORTED_DYNAMIC", Family.NOT_SUPPORTED, "fix_code"),
    (148051, "ACL_ERROR_RELATIVE_RESOURCE_NOT_CLEARED", Family.OTHER, "fix_code"),
    (148052, "ACL_ERROR_UNSUPPORTED_JPEG", Family.NOT_SUPPORTED, "fix_code"),
    (148053, "ACL_ERROR_INVALID_BUNDLE_MODEL_ID", Family.PARAMETER, "fix_code"),
    # Resource: the ACL layer
    (200000, "ACL_ERROR_BAD_ALLOC", Family.OUT_OF_MEMORY, "retry"),
    (200001, "ACL_ERROR_API_NOT_SUPPORT", Family.NOT_SUPPORTED, "fix_code"),
    (200002, "ACL_ERROR_INVALID_DEVICE", Family.PARAMETER, "fix_code"),
    (200003, "ACL_ERROR_MEMORY_ADDRESS_UNALIGNED", Family.PARAMETER, "fix_code"),
    (200004, "ACL_ERROR_RESOURCE_NOT_MATCH", Family.CONTEXT, "fix_code"),
    (200005, "ACL_ERROR_INVALID_RESOURCE_HANDLE", Family.CONTEXT, "fix_code"),
    (200006, "ACL_ERROR_FEATURE_UNSUPPORTED", Family.NOT_SUPPORTED, "fix_code"),
    (200007, "ACL_ERROR_PROF_MODULES_UNSUPPORTED", Family.NOT_SUPPORTED, "fix_code"),
    # Resource: the runtime
    (207000, "ACL_ERROR_RT_FEATURE_NOT_SUPPORT", Family.NOT_SUPPORTED, "fix_code"),
    (207001, "ACL_ERROR_RT_MEMORY_ALLOCATION", Family.OUT_OF_MEMORY, "retry"),
    (207002, "ACL_ERROR_RT_MEMORY_FREE", Family.OTHER, "fix_code"),
    (207003, "ACL_ERROR_RT_AICORE_OVER_FLOW", Family.OTHER, "fix_code"),
    (207004, "ACL_ERROR_RT_NO_DEVICE", Family.OTHER, "fix_code"),
    (207005, "ACL_ERROR_RT_RESOURCE_ALLOC_FAIL", Family.EXHAUSTED, "retry"),
    (207006, "ACL_ERROR_RT_NO_PERMISSION", Family.OTHER, "fix_code"),
    (207007, "ACL_ERROR_RT_NO_EVENT_RESOURCE", Family.EXHAUSTED, "retry"),
    (207008, "ACL_ERROR_RT_NO_STREAM_RESOURCE", Family.EXHAUSTED, "retry"),
    (207009, "ACL_ERROR_RT_NO_NOTIFY_RESOURCE", Family.EXHAUSTED, "retry"),
    (207010, "ACL_ERROR_RT_NO_MODEL_RESOURCE", Family.EXHAUSTED, "retry"),
    (207011, "ACL_ERROR_RT_NO_CDQ_RESOURCE", Family.EXHAUSTED, "retry"),
    (207012, "ACL_ERROR_RT_OVER_LIMIT", Family.EXHAUSTED, "retry"),
    (207013, "ACL_ERROR_RT_QUEUE_EMPTY", Family.OTHER, "retry"),
    (207014, "ACL_ERROR_RT_QUEUE_FULL", Family.QUEUE_FULL, "retry"),
    (207015, "ACL_ERROR_RT_REPEATED_INIT", Family.OTHER, "fix_code"),
    (207016, "ACL_ERROR_RT_AIVEC_OVER_FLOW", Family.OTHER, "fix_code"),
    (207017, "ACL_ERROR_RT_OVER_FLOW", Family.OTHER, "fix_code"),
    (207018, "ACL_ERROR_RT_DEVICE_OOM", Family.OUT_OF_MEMORY, "retry"),
    (207019, "ACL_ERROR_RT_FEATURE_NOT_SUPPORT_UPDATE_OP", Family.NOT_SUPPORTED, "fix_code"),
    (207020, "ACL_ERROR_RT_TIMEOUT", Family.TIMEOUT, "retry"),
    (207021, "ACL_ERROR_RT_LINK_TYPE_NOT_SUPPORTED", Family.NOT_SUPPORTED, "fix_code"),
    # Resource: the graph engine
    (245000, "ACL_ERROR_GE_MEMORY_ALLOCATION", Family.OUT_OF_MEMORY, "retry"),
    (245001, "ACL_ERROR_GE_MEMORY_OPERATE_FAILED", Family.DEVICE_FAULT, "reset"),
    (245002, "ACL_ERROR_GE_DEVICE_MEMORY_OPERATE_FAILED", Family.DEVICE_FAULT, "reset"),
    # Business
    (300000, "ACL_ERROR_STORAGE_OVER_LIMIT", Family.EXHAUSTED, "retry"),
    (345102, "ACL_ERROR_GE_SUBHEALTHY", Family.DEVICE_FAULT, "replace"),
    (345103, "ACL_ERROR_GE_USER_RAISE_EXCEPTION", Family.OTHER, "fix_code"),
    (345104, "ACL_ERROR_GE_DATA_NOT_ALIGNED", Family.PARAMETER, "fix_code"),
    # Internal: the ACL layer
    (500000, "ACL_ERROR_INTERNAL_ERROR", Family.OTHER, "fix_code"),
    (500001, "ACL_ERROR_FAILURE", Family.DEVICE_FAULT, "reset"),
    (500002, "ACL_ERROR_GE_FAILURE", Family.OTHER, "fix_code"),
    (500003, "ACL_ERROR_RT_FAILURE", Family.DEVICE_FAULT, "reset"),
    (500004, "ACL_ERROR_DRV_FAILURE", Family.DEVICE_FAULT, "reset"),
    (500005, "ACL_ERROR_PROFILING_FAILURE", Family.OTHER, "fix_code"),
    # Internal: the runtime
    (507000, "ACL_ERROR_RT_INTERNAL_ERROR", Family.DEVICE_FAULT, "reset"),
    (507001, "ACL_ERROR_RT_TS_ERROR", Family.DEVICE_FAULT, "new_stream"),
    (507002, "ACL_ERROR_RT_STREAM_TASK_FULL", Family.QUEUE_FULL, "retry"),
    (507003, "ACL_ERROR_RT_STREAM_TASK_EMPTY", Family.OTHER, "retry"),
    (507004, "ACL_ERROR_RT_STREAM_NOT_COMPLETE", Family.OTHER, "retry"),
    (507005, "ACL_ERROR_RT_END_OF_SEQUENCE", Family.OTHER, "fix_code"),
    (507006, "ACL_ERROR_RT_EVENT_NOT_COMPLETE", Family.OTHER, "retry"),
    (507007, "ACL_ERROR_RT_CONTEXT_RELEASE_ERROR", Family.CONTEXT, "fix_code"),
    (507008, "ACL_ERROR_RT_SOC_VERSION", Family.NOT_SUPPORTED, "fix_code"),
    (507009, "ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT", Family.NOT_SUPPORTED, "fix_code"),
    (507010, "ACL_ERROR_RT_LOST_HEARTBEAT", Family.DEVICE_FAULT, "reset"),
    (507011, "ACL_ERROR_RT_MODEL_EXECUTE", Family.DEVICE_FAULT, "new_stream"),
    (507012, "ACL_ERROR_RT_REPORT_TIMEOUT", Family.TIMEOUT, "retry"),
    (507013, "ACL_ERROR_RT_SYS_DMA", Family.DEVICE_FAULT, "reset"),
    (507014, "ACL_ERROR_RT_AICORE_TIMEOUT", Family.TASK_TIMEOUT, "new_stream"),
    (507015, "ACL_ERROR_RT_AICORE_EXCEPTION", Family.DEVICE_FAULT, "new_stream"),
    (507016, "ACL_ERROR_RT_AICORE_TRAP_EXCEPTION", Family.DEVICE_FAULT, "new_stream"),
    (507017, "ACL_ERROR_RT_AICPU_TIMEOUT", Family.TASK_TIMEOUT, "new_stream"),
    (507018, "ACL_ERROR_RT_AICPU_EXCEPTION", Family.DEVICE_FAULT, "new_stream"),
    (507019, "ACL_ERROR_RT_AICPU_DATADUMP_RSP_ERR", Family.DEVICE_FAULT, "reset"),
    (507020, "ACL_ERROR_RT_AICPU_MODEL_RSP_ERR", Family.DEVICE_FAULT, "reset"),
    (507021, "ACL_ERROR_RT_PROFILING_ERROR", Family.OTHER, "fix_code"),
    (507022, "ACL_ERROR_RT_IPC_ERROR", Family.OTHER, "fix_code"),
    (507023, "ACL_ERROR_RT_MODEL_ABORT_NORMAL", Family.ABORTED, "retry"),
    (507024, "ACL_ERROR_RT_KERNEL_UNREGISTERING", Family.PARAMETER, "fix_code"),
    (507025, "ACL_ERROR_RT_RINGBUFFER_NOT_INIT", Family.OTHER, "fix_code"),
    (507026, "ACL_ERROR_RT_RINGBUFFER_NO_DATA", Family.OTHER, "retry"),
    (507027, "ACL_ERROR_RT_KERNEL_LOOKUP", Family.PARAMETER, "fix_code"),
    (507028, "ACL_ERROR_RT_KERNEL_DUPLICATE", Family.PARAMETER, "fix_code"),
    (507029, "ACL_ERROR_RT_DEBUG_REGISTER_FAIL", Family.OTHER, "fix_code"),
    (507030, "ACL_ERROR_RT_DEBUG_UNREGISTER_FAIL", Family.OTHER, "fix_code"),
    (507031, "ACL_ERROR_RT_LABEL_CONTEXT", Family.CONTEXT, "fix_code"),
    (507032, "ACL_ERROR_RT_PROGRAM_USE_OUT", Family.EXHAUSTED, "retry"),
    (507033, "ACL_ERROR_RT_DEV_SETUP_ERROR", Family.DEVICE_FAULT, "repair"),
    (507034, "ACL_ERROR_RT_VECTOR_CORE_TIMEOUT", Family.TASK_TIMEOUT, "new_stream"),
    (507035, "ACL_ERROR_RT_VECTOR_CORE_EXCEPTION", Family.DEVICE_FAULT, "new_stream"),
    (507036, "ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION", Family.DEVICE_FAULT, "new_stream"),
    (507037, "ACL_ERROR_RT_CDQ_BATCH_ABNORMAL", Family.DEVICE_FAULT, "reset"),
    (507038, "ACL_ERROR_RT_DIE_MODE_CHANGE_ERROR", Family.PARAMETER, "fix_code"),
    (507039, "ACL_ERROR_RT_DIE_SET_ERROR", Family.PARAMETER, "fix_code"),
    (507040, "ACL_ERROR_RT_INVALID_DIEID", Family.PARAMETER, "fix_code"),
    (507041, "ACL_ERROR_RT_DIE_MODE_NOT_SET", Family.PARAMETER, "fix_code"),
    (507042, "ACL_ERROR_RT_AICORE_TRAP_READ_OVERFLOW", Family.DEVICE_FAULT, "reset"),
    (507043, "ACL_ERROR_RT_AICORE_TRAP_WRITE_OVERFLOW", Family.DEVICE_FAULT, "reset"),
    (507044, "ACL_ERROR_RT_VECTOR_CORE_TRAP_READ_OVERFLOW", Family.DEVICE_FAULT, "reset"),
    (507045, "ACL_ERROR_RT_VECTOR_CORE_TRAP_WRITE_OVERFLOW", Family.DEVICE_FAULT, "reset"),
    (507046, "ACL_ERROR_RT_STREAM_SYNC_TIMEOUT", Family.TIMEOUT, "retry"),
    (507047, "ACL_ERROR_RT_EVENT_SYNC_TIMEOUT", Family.TIMEOUT, "retry"),
    (507048, "ACL_ERROR_RT_FFTS_PLUS_TIMEOUT", Family.TASK_TIMEOUT, "new_stream"),
    (507049, "ACL_ERROR_RT_FFTS_PLUS_EXCEPTION", Family.DEVICE_FAULT, "new_stream"),
    (507050, "ACL_ERROR_RT_FFTS_PLUS_TRAP_EXCEPTION", Family.DEVICE_FAULT, "new_stream"),
    (507051, "ACL_ERROR_RT_SEND_MSG", Family.DEVICE_FAULT, "reset"),
    (507052, "ACL_ERROR_RT_COPY_DATA", Family.DEVICE_FAULT, "reset"),
    (507053, "ACL_ERROR_RT_DEVICE_MEM_ERROR", Family.DEVICE_FAULT, "repair"),
    (507054, "ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR", Family.DEVICE_FAULT, "repair"),
    (507055, "ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR", Family.DEVICE_FAULT, "repair"),
    (507056, "ACL_ERROR_RT_LINK_ERROR", Family.DEVICE_FAULT, "repair"),
    (507057, "ACL_ERROR_RT_SUSPECT_REMOTE_ERROR", Family.DEVICE_FAULT, "repair"),
    (507899, "ACL_ERROR_RT_DRV_INTERNAL_ERROR", Family.DEVICE_FAULT, "reset"),
    (507900, "ACL_ERROR_RT_AICPU_INTERNAL_ERROR", Family.DEVICE_FAULT, "reset"),
    (507901, "ACL_ERROR_RT_SOCKET_CLOSE", Family.DEVICE_FAULT, "reset"),
    (507902, "ACL_ERROR_RT_AICPU_INFO_LOAD_RSP_ERR", Family.DEVICE_FAULT, "reset"),
    (507903, "ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED", Family.PARAMETER, "fix_code"),
    (507904, "ACL_ERROR_RT_COMM_OP_RETRY_FAIL", Family.DEVICE_FAULT, "repair"),
    (507905, "ACL_ERROR_SNAPSHOT_LOCK_TIMEOUT", Family.TIMEOUT, "retry"),
    (507906, "ACL_ERROR_SNAPSHOT_LOCK_FAILED", Family.OTHER, "fix_code"),
    (507907, "ACL_ERROR_SNAPSHOT_UNLOCK_FAILED", Family.OTHER, "fix_code"),
    (507908, "ACL_ERROR_SNAPSHOT_BACKUP_FAILED", Family.OTHER, "fix_code"),
    (507909, "ACL_ERROR_SNAPSHOT_RESTORE_FAILED", Family.OTHER, "fix_code"),
    (507910, "ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED", Family.PARAMETER, "fix_code"),
    (507911, "ACL_ERROR_HOST_MEMORY_NOT_REGISTERED", Family.PARAMETER, "fix_code"),
    (507912, "ACL_ERROR_SNAPSHOT_CALLBACK_FAILED", Family.OTHER, "fix_code"),
    (507913, "ACL_ERROR_SNAPSHOT_REGISTER_CALLBACK_FAILED", Family.OTHER, "fix_code"),
    (507914, "ACL_ERROR_RT_L3_PORT_ERROR", Family.DEVICE_FAULT, "reset"),
    (507915, "ACL_ERROR_RT_CCU_TIMEOUT", Family.TASK_TIMEOUT, "new_stream"),
    (507916, "ACL_ERROR_RT_CCU_EXCEPTION", Family.DEVICE_FAULT, "new_stream"),
    # Internal: the graph engine
    (545000, "ACL_ERROR_GE_INTERNAL_ERROR", Family.DEVICE_FAULT, "reset"),
    (545001, "ACL_ERROR_GE_LOAD_MODEL", Family.OTHER, "fix_code"),
    (545002, "ACL_ERROR_GE_EXEC_LOAD_MODEL_PARTITION_FAILED", Family.OTHER, "fix_code"),
    (545003, "ACL_ERROR_GE_EXEC_LOAD_WEIGHT_PARTITION_FAILED", Family.OTHER, "fix_code"),
    (545004, "ACL_ERROR_GE_EXEC_LOAD_TASK_PARTITION_FAILED", Family.OTHER, "fix_code"),
    (545005, "ACL_ERROR_GE_EXEC_LOAD_KERNEL_PARTITION_FAILED", Family.OTHER, "fix_code"),
    (545006, "ACL_ERROR_GE_EXEC_RELEASE_MODEL_DATA", Family.DEVICE_FAULT, "reset"),
    (545007, "ACL_ERROR_GE_COMMAND_HANDLE", Family.DEVICE_FAULT, "reset"),
    (545008, "ACL_ERROR_GE_GET_TENSOR_INFO", Family.OTHER, "fix_code"),
    (545009, "ACL_ERROR_GE_UNLOAD_MODEL", Family.DEVICE_FAULT, "reset"),
    (545601, "ACL_ERROR_GE_MODEL_EXECUTE_TIMEOUT", Family.TIMEOUT, "reset"),
    (545602, "ACL_ERROR_GE_REDEPLOYING", Family.OTHER, "retry"),
)

EFFECTS: Final = (507899,)  # codes of calls that fail because of an earlier fault

_HINTS: Final[dict[str, tuple[int, ...]]] = {
    "The call succeeded; nothing needs to be done.": (0,),
    "Open a device through aioacl, which initialises ACL, before you call ACL yourself.": (100001,),
    "ACL is already initialised: continue, and leave finalizing to the code that initialised it.": (100002,),
    "Check that the path names a readable file of the expected size.": (100003, 100005),
    "Check the syntax and the keys of the JSON file.": (100006, 100007, 100008),
    "Use the id that loading the model returned; it is valid until the model is unloaded.": (100011,),
    "Convert the model again with the ATC of this CANN release.": (100012, 100013, 100014, 100015, 100016),
    "Pass as many buffers as the model describes, each at least as large as described.": (100017, 100018),
    "Finalize ACL only once, and only in a process that has initialised it.": (100037,),
    "The loaded library is the toolkit's stub for linking; load the real library from lib64.": (100039,),
    "Use an index from list_devices(); ASCEND_RT_VISIBLE_DEVICES hides devices, and renumbers the rest.": (
        107001,
    ),
    "Make the call through a handle of an open device, which binds the context to the thread.": (107002,),
    "Use the stream only with handles of the same device and generation.": (107003,),
    "Create the event with timing=True, and await it first.": (107006,),
    "Pass the events in the order in which they were recorded.": (107007,),
    "The handle was destroyed or never made: make a new one from the device.": (107017, 200005),
    "Set the system parameter before you read it.": (107021,),
    "An abort of the device's tasks is running: wait until it has ended, then enqueue again.": (107022,),
    "End or repair the capture before this call; a captured stream accepts only calls that enqueue.": (
        107024,
        107025,
        107026,
        107027,
        107029,
        107030,
        107031,
        107032,
        107036,
        107038,
        107041,
        107045,
    ),
    "The event belongs to a capture. Use an event that is recorded outside of the capture.": (107028,),
    "The abort ended before its clean-up was done: abort again, or reset the device.": (107035,),
    "Await the model's stream, then call again.": (107037,),
    "Initialise ACL before models are loaded.": (145001,),
    "Set ASCEND_OPP_PATH by sourcing set_env.sh of the toolkit.": (148049,),
    "Close everything that was made from this resource, then release the resource.": (148051,),
    "The host is out of memory: free memory, or lower the load.": (200000,),
    "Use an index from list_devices(), and check that npu-smi shows the card.": (200002,),
    "Align the address as the function's documentation requires.": (200003,),
    "Pass zero for reserved arguments, or update CANN.": (200006,),
    "Follow the message. If there is none, update driver and firmware, or do without the function.": (
        207000,
    ),
    "Free each address only once, before the device that allocated it is reset.": (207002,),
    "A kernel's result overflowed its number type: check the inputs, scale them, or turn saturation off.": (
        207003,
        207016,
        207017,
    ),
    "Check ASCEND_RT_VISIBLE_DEVICES (ascending, no spaces) and which cards the container may use.": (
        207004,
    ),
    "Give the user access to the device files, usually by the group HwHiAiUser.": (207006,),
    "Close events that are no longer used, or record them again.": (207007,),
    "Close streams that are no longer used.": (207008,),
    "Nothing is available yet: try again later.": (207013, 507003, 507026),
    "Free storage, or raise its limit.": (300000,),
    "Move the work to another card, and have this card examined.": (345102,),
    "Look for the exception of the user function in the log of that function.": (345103,),
    "If aclInit returns this code, other libraries of CANN were not found: `source set_env.sh`.": (500000,),
    "CANN refused a use of a model: read the text of the error, and check the model and its inputs.": (
        500002,
    ),
    "If all calls return this code, CANN libraries are missing: `source set_env.sh`; otherwise reset.": (
        507000,
    ),
    "A copy, an event wait or another task failed: make a new stream, or `await stream.renew()`.": (507001,),
    "Await the stream or the event first.": (507004, 507006),
    "The input has ended: stop reading.": (507005,),
    "The device is not set, or was reset before: pair each reset with exactly one set.": (507007,),
    "Use a model or kernel that was built for this chip.": (507008,),
    "Reset the device; if the reset fails, check npu-smi and the driver's log.": (507010, 507901),
    "Wait for the report again.": (507012,),
    "Check the addresses and sizes that the task uses; then make a new stream, or `await stream.renew()`.": (
        507015,
        507016,
        507018,
        507035,
        507036,
        507049,
        507050,
    ),
    "Check the addresses and sizes that the task uses; reset the device if later calls fail too.": (
        507042,
        507043,
        507044,
        507045,
    ),
    "Register the kernel's binary first, and check its name.": (507027,),
    "Check that npu-smi shows the card as healthy, and that driver and firmware match.": (507033,),
    "Reset the device and reload its data from a good copy.": (507053, 507055),
    "Reset the device and reload its data; replace the card if it happens again.": (507054,),
    "Bring the network link up again, then reset the device.": (507056,),
    "Repair the peer device first, then reset this device.": (507057,),
    "An earlier fault caused this code, not a lack of memory: find the first error, then reset.": EFFECTS,
    "Discard this capture and begin a new one.": (507903,),
    "Check the links and the peers of the collective, then reset the device.": (507904,),
    "Check that the model was built for this chip and CANN release, and that it fits into memory.": (
        545001,
        545002,
        545003,
        545004,
        545005,
        545008,
    ),
    "Allow more time; if the model still makes no progress, reset the device.": (545601,),
    "The model is being redeployed: try again later.": (545602,),
}

_SOURCES: Final[dict[str, tuple[int, ...]]] = {
    "runtime source, and a run of the runtime over an emulated driver: one failed copy": (507001,),
    "runtime source: timeout of one copy, model execution or other task": (107020,),
    "runtime source: result of one kernel": (
        507014,
        507015,
        507016,
        507017,
        507018,
        507034,
        507035,
        507036,
    ),
    "runtime source: result of one FFTS+ task": (507048, 507049, 507050),
    "runtime source: result of one model execution": (507011,),
    "runtime source: result of one fused kernel on the CCU": (507915, 507916),
}

_RANGES: Final[dict[int, tuple[Family, Action]]] = {
    1: (Family.PARAMETER, "fix_code"),
    2: (Family.EXHAUSTED, "retry"),
    3: (Family.OTHER, "retry"),
    5: (Family.DEVICE_FAULT, "reset"),
}
_RANGE_SIZE: Final = 100_000


def _unique(what: str, pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, _Value]:
    """Make a dict. If a key occurs twice, raise ValueError.

    `what` names a value and its key, for the message: "row for the code".
    """
    table: dict[_Key, _Value] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"expected one {what} {key}, got two; remove one of them")
        table[key] = value
    return table


def _table(
    rows: Iterable[tuple[int, str, Family, Action]],
    hints: Mapping[str, tuple[int, ...]],
    sources: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> dict[int, Code]:
    """Join rows, hints and sources.

    Raises:
        ValueError: a code or name occurs twice; a code has two hints or two sources; a hint or source has no code; a
            new_stream code has no source; or a code with another action has a source.
    """
    rows = _unique("row for the code", ((row[0], row) for row in rows)).values()
    _unique("row for the name", ((row[1], row) for row in rows))
    texts = _unique("hint for the code", ((code, hint) for hint, codes in hints.items() for code in codes))
    origins = _unique(
        "source for the code", ((code, text) for text, codes in sources.items() for code in codes)
    )
    records = [Code(*row, hint=texts.pop(row[0], ""), source=origins.pop(row[0], "")) for row in rows]
    if texts or origins:
        raise ValueError(
            f"expected hints and sources only for codes of the table, got {sorted(texts | origins)}"
        )
    unproven = [record.code for record in records if (record.action == "new_stream") != bool(record.source)]
    if unproven:
        raise ValueError(
            f"expected a source for each new_stream code and for no other code, got {unproven}; correct _SOURCES in "
            "aioacl/_base/codes.py"
        )
    return {record.code: record for record in records}


@cache
def _codes() -> dict[int, Code]:
    return _table(_ROWS, _HINTS, _SOURCES)


def lookup(code: int) -> Code:
    """Return the entry of a code; an unknown code keeps its number and gets the family of its range."""
    known = _codes().get(code)
    if known is not None:
        return known
    family, action = _RANGES.get(code // _RANGE_SIZE, (Family.OTHER, "fix_code"))
    return Code(code, f"ACL_ERROR_UNKNOWN_{code}", family, action)


@cache
def by_name() -> Mapping[str, int]:
    """Return the codes of the table by their names."""
    return {record.name: code for code, record in _codes().items()}


def is_of(code: int, family: Family) -> bool:
    """Return whether a code is an error of ACL that belongs to the family."""
    return code > 0 and lookup(code).family is family
