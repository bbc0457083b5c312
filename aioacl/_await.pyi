"""The types and functions of aioacl/_binding, in the shared object of aioacl._acl."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Hashable, Iterator
from types import CodeType, ModuleType
from typing import Any, Literal, TypeVar

from typing_extensions import Buffer, CapsuleType

T = TypeVar("T")

class HandleBase:
    """The base of Handle. It has the fields of streams, events and buffers that an enqueue reads."""

    _manager: Any
    _born: Any
    _site: Any
    _core: Any
    _version: Recorded | None
    _uses: Uses
    _bytes: Keeper | None
    _address: int
    _size: int
    _block: int
    _kind: int
    _device: int
    _generation: int
    _timing: bool
    _closed: bool
    @property
    def _owed(self) -> bool: ...
    @property
    def _base(self) -> Any: ...
    def _claim(self) -> bool: ...
    def _make_view_of(self, base: Any, /) -> None: ...

class Exporter:
    """The base of buffers: a view of an instance is a view of the object in its attribute `_exported`."""

class InFlight:
    """The references of one piece of work: the objects that it uses, its stream, and its position."""

    position: int
    def __init__(self, core: Any, buffers: tuple[Any, ...], held: object) -> None: ...
    @property
    def core(self) -> Any: ...
    @property
    def buffers(self) -> tuple[Any, ...]: ...
    @property
    def held(self) -> object: ...

class Uses:
    """The InFlight objects that refer to one buffer, in the order of their enqueues."""

    def add(self, reference: InFlight, /) -> None: ...
    def __iter__(self) -> Iterator[InFlight]: ...
    def __bool__(self) -> bool: ...

class Recorded:
    """One record of an event."""

    @property
    def core(self) -> Any: ...
    @property
    def position(self) -> int: ...
    @property
    def native(self) -> int: ...

class Awaitable:
    """The base of awaitable objects. Subclasses have `_target` and `_await_in_python`."""

    def __await__(self) -> Generator[Any, Any, None]: ...

class Core:
    """The base of StreamCore: the engine's record of a stream, and the stream's in-flight references."""

    gone: bool
    owned: bool
    @property
    def awaits(self) -> int: ...
    @property
    def in_flight(self) -> list[InFlight]:
        """The references, as a new list."""

    def _add(self, reference: InFlight, /) -> None: ...
    def _attach(self, stream: int, /) -> None: ...
    def _drop(self, reference: InFlight, /) -> None: ...
    def _release_if_many(self) -> None: ...
    def oldest(self) -> int: ...
    def release_done(self) -> None: ...

class Block:
    """The base of Launch: a block in which other code enqueues on a stream."""

    _ticket: Any
    @property
    def _stream(self) -> Any: ...
    @property
    def _core(self) -> Any: ...
    @property
    def _over(self) -> bool: ...
    @property
    def _position(self) -> int | None: ...
    def _open(self, held: bool, /) -> int: ...
    def _end(self) -> int: ...

class Keeper(Buffer):
    """Keeps the memory of a buffer. Its end gives the memory to the cache of the device."""

    @property
    def address(self) -> int: ...

class Baton:
    """A lock that `with` takes without waiting; the block gets whether it has taken the lock."""

    def __enter__(self) -> bool: ...
    def __exit__(self, *error: object) -> Literal[False]: ...

class TurnBase:
    """The base of Turn, which describes the fields."""

    items: list[Any]
    of: Any
    born: float
    rows: int
    apart: bool
    def end(self, now: float, /) -> list[Any]:
        """Ends the turn, and returns its items. It drops them, because they refer to it."""

class LoopBase:
    """The base of AsyncioLoop, which describes the fields."""

    loop: Any
    turn: Any
    runner: Any
    hook: object
    call_soon: Callable[..., object]
    new_future: Callable[[], Any]
    planned: bool
    def between_tasks(self, function: Callable[[Any], object], argument: object, /) -> None:
        """Calls a function in a callback of the loop, which is in none of its tasks."""

    def end_turn(self) -> None:
        """Hands the items of the turn over to the runner. The loop calls it at the end of the turn."""

    def flush(self) -> None:
        """Hands the items over that have come so far, because the batcher closes. Any thread may call it."""

    def send(self, items: list[Any], outcomes: list[Any], /) -> None:
        """Ends items with a result or an exception each. Any thread may call it."""

    def deliver(self, items: list[Any], outcomes: list[Any], /) -> None:
        """Sets the futures of items, on their loop. Of Mixed outcomes, the exceptions are raised."""

class RunnerBase:
    """The base of Runner, which describes the fields."""

    refusal: Callable[[], object] | None
    last: Any
    max_rows: int
    spec: Spec | None
    shape: Hashable
    driver: int
    def arrive(self, turn: TurnBase, /) -> None:
        """Tells `_arrive` about the items of a turn of a loop, or of a thread."""

    def tell(self, method: Callable[..., object], /, *arguments: object) -> None:
        """Lets the driver call a method with at most two arguments. Without a driver, this thread drives."""

    def drive(self) -> None:
        """Handles the news that is left, unless another thread does so, or this thread in a frame below."""

class ItemBase:
    """The base of BatchItem. `waiting.Item` describes the fields that the core uses."""

    _runner: Any
    _call: Any
    _key: Hashable
    _shape: Hashable
    _future: Any
    _turn: Any
    _timeout: Any
    _deadline: float | None
    _rows: int
    _state: int
    _patient: bool
    def __await__(self) -> Generator[Any, Any, Any]: ...

class Dataset:
    """A dataset of the buffers that a tuple of (address, size) names (aclmdlCreateDataset).

    The end of the last reference destroys it.
    """

    def __init__(self, parts: tuple[tuple[int, int], ...], /) -> None: ...
    @property
    def address(self) -> int:
        """The address of the aclmdlDataset."""

class Cache:
    """The closed memory and streams of a device that later requests use again. Kinds: 0 streams, 1 device, 2 pinned."""

    enabled: bool
    def __init__(
        self, device: int, failures: Any, leases: Any, limits: dict[int, int], maintenance: Any
    ) -> None: ...
    @property
    def accepts(self) -> bool: ...
    @property
    def left(self) -> int: ...
    @property
    def pinned(self) -> int: ...
    @property
    def counts(self) -> tuple[int, int, int]: ...
    @property
    def sizes(self) -> tuple[int, int, int]: ...
    def allocate_pinned(self, generation: int, size: int, block: int, /) -> Keeper | int: ...
    def block_size(self, size: int, /) -> int: ...
    def end_left(self) -> Any: ...
    def fits(self, block: int, /) -> bool: ...
    def give(self, generation: int, address: int, size: int, /) -> bool: ...
    def give_buffer(self, buffer: Any, /) -> bool: ...
    def give_idle(self, stream: Any, ended: Any, /) -> bool: ...
    def lend(self, buffer: Any, /) -> Keeper | None: ...
    def oldest(self, kind: int, /) -> Any: ...
    def release(self, core: Core, /) -> int: ...

class DlpackTensor:
    """A DLPack structure that was taken over. Its deleter runs when the object is gone.

    If it is a contiguous tensor in host memory, it has a buffer.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...

class Spec:
    """The shapes and types of a model's tensors, and its gears; see arguments.c."""

    def __init__(
        self,
        kind: int,
        inputs: tuple[tuple[tuple[str, ...], int, tuple[int, ...]], ...],
        outputs: tuple[tuple[int, int, bool], ...],
        gears: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...]], ...],
        names: tuple[str, ...],
        arrays: Callable[[], tuple[Any, tuple[Any, ...]]],
        /,
    ) -> None: ...

class Arguments:
    """The checked arguments of one call of a model, and the number of its gear."""

    def __init__(
        self, spec: Spec, views: tuple[memoryview, ...], gear: int, rows: int | None, /
    ) -> None: ...
    @property
    def gear(self) -> int: ...
    @property
    def rows(self) -> int | None: ...

def check_arguments(spec: Spec, given: Any, /) -> Arguments | None: ...

class SlotsBase:
    """The slots of one load of a model, and the threads that enqueue its calls."""

    def __new__(
        cls,
        device: int,
        generation: int,
        kind: int,
        inputs: int,
        outputs: int,
        models: tuple[int, ...],
        slots: tuple[tuple[int, Any, tuple[tuple[int, int, int], ...], int, int], ...],
        /,
    ) -> Any: ...
    @property
    def open(self) -> bool: ...
    @property
    def back(self) -> bool: ...
    @property
    def free(self) -> int: ...
    @property
    def busy(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def writing(self) -> int: ...
    @property
    def all(self) -> int: ...
    @property
    def address(self) -> int: ...
    def _start(self) -> int: ...
    def _end(self) -> None: ...
    def _wake(self, code: int, /) -> None: ...
    def _close(self) -> None: ...
    def _collect(self) -> None: ...
    def _take_failed(self) -> int | None: ...
    def _renewed(self, index: int, core: Any, /) -> None: ...

class Await:
    """The Await of a Run that has begun."""

    def __await__(self) -> Generator[Any, Any, None]:
        """Waits until it is done. A cancellation ends only the wait. For asyncio."""

    def done(self) -> bool: ...
    def take(self) -> Any:
        """The results of the call, or None if it has failed. For one caller, when it is done."""

class Run:
    """One run of a call of a model. An await returns the results, or None if it has failed."""

    def __new__(
        cls,
        slots: SlotsBase,
        arguments: Arguments | tuple[Arguments, ...],
        targets: tuple[memoryview, ...] | None,
        out: Any,
        wait: bool,
        held: bool,
        gear: int = -1,
        /,
    ) -> Any: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...
    @property
    def result(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def function(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def text(self) -> str | None: ...
    @property
    def begun(self) -> bool: ...
    @property
    def core(self) -> Any: ...
    @property
    def waits(self) -> bool: ...
    @property
    def fresh(self) -> bool: ...
    @property
    def device(self) -> int: ...
    def _begin(self, port: int, key: int, /) -> int: ...
    def _arrived(self, result: int, /) -> None: ...
    def _start(self, notify: Callable[[], object] | None, /) -> Await: ...
    def _end(self) -> Any: ...
    def leave(self) -> bool:
        """Gives the call up. Returns whether some of its work has begun or may begin."""

class OperationBase:
    """The base of Operation: its fields, and the quick way of an Opening that takes its object from the cache."""

    _what: Any
    _begin: Any
    _of: object
    _state: str
    _made: Any
    _site: Any
    @property
    def _device(self) -> Any: ...
    @property
    def _timeout(self) -> Any: ...
    @property
    def _kind(self) -> int: ...
    @property
    def _key(self) -> int: ...
    @property
    def _wait(self) -> bool: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...
    def _await_call(self) -> Generator[Any, Any, Any]: ...
    def _from_cache(self) -> Any:
        """The object, made of what the cache has kept, or None."""

class Position:
    """The base of Ticket: a position in a stream."""

    def __init__(self, core: Core, position: int, call: str = "", *, twin: bool = False) -> None: ...
    def __await__(self) -> Generator[Any, Any, None]: ...
    @property
    def _core(self) -> Any: ...
    @property
    def _position(self) -> int: ...
    @property
    def _call(self) -> str: ...
    @property
    def _twin(self) -> bool: ...

class Awaits:
    """The base of AsyncioPort and TrioPort: the awaits of a loop."""

    _quick_us: int
    _patience_us: int
    @property
    def _outstanding(self) -> int: ...
    def _attach(self, port: int, /) -> None: ...
    def _leave_runs(self) -> None: ...
    def _gives_way(self, loop: AbstractEventLoop, /) -> bool: ...
    def _new_turn(self) -> None: ...
    def drain(self) -> None: ...
    def read(self) -> None: ...
    def run_ready(self) -> None: ...

def bind(current_port: Callable[[], object], must_not_be_forked: Callable[[], object], /) -> None: ...
def bind_enqueue(
    ticket: type,
    event: type,
    buffer: type,
    deferred: dict[InFlight, Any],
    free_deferred: Callable[[InFlight], object],
    /,
) -> None: ...
def bind_trio(lowlevel: ModuleType, /) -> None: ...
def dlpack_export(
    owner: object,
    address: int,
    nbytes: int,
    device_type: int,
    device_index: int,
    versioned: bool,
    read_only: bool,
    /,
) -> CapsuleType:
    """Makes a capsule with a tensor of bytes, which refers to the owner of the memory."""

def dlpack_fields(capsule: object, /) -> tuple[Any, ...] | None:
    """Reads a capsule without taking it over. Returns None if it is not a DLPack capsule, or was taken.

    The fields are: device type, device index, address, byte offset, shape, strides, code, bits, lanes and flags. The
    shape is None if it is missing or has more than 64 dimensions. For a tensor of another major version, the only
    fields are the two numbers of the version.
    """

def dlpack_take(capsule: object, /) -> DlpackTensor | None:
    """Takes a capsule over, and renames it; None if another thread has taken it."""

def bind_launch(type: type[Block], /) -> None: ...
def borrow_event(core: Core, address: int, /) -> Recorded: ...
def bind_maker(kind: int, maker: type, /) -> None: ...
def enqueue_copy(
    stream: object, target: object, source: object, nbytes: object, right: bool | None = ..., /
) -> Any: ...
def enqueue_fill(
    stream: object, target: object, byte: object, nbytes: object, right: bool | None = ..., /
) -> Any: ...
def enqueue_record(stream: object, event: object, right: bool | None = ..., /) -> Any: ...
def enqueue_wait_event(stream: object, event: object, right: bool | None = ..., /) -> Any: ...
def in_trio() -> bool:
    """Whether trio runs code on this thread now."""

def new_launch(stream: object, tasks: object, reported: object, /) -> Any: ...
def open_cached(kind: type[T], device: Any, item: int, key: int, wait: bool, timeout: Any, /) -> T: ...
def plain_awaits(on: bool, /) -> None:
    """Whether awaits of tickets, events and streams run in Python on event loops too."""

def new_item(runner: RunnerBase, check: Callable[[Any], tuple[Any, int, Hashable]], x: object, /) -> Any:
    """Returns a BatchItem of the checked arguments, or raises the runner's refusal."""

def move_items(items: list[Any], before: int, after: int, /) -> int:
    """Moves items from one state to another, until one is in a third state. Returns their number."""

def bind_items(
    item: type[ItemBase],
    turn: type[TurnBase],
    mixed: type[list[Any]],
    ended: object,
    not_yet: float,
    new: int,
    waiting: int,
    /,
) -> None:
    """Stores the classes of items, turns and mixed outcomes, and what replaces the future of a failed item.

    Also NOT_YET, and the states NEW and WAITING of items.
    """

def bind_driver(uninterrupted: Callable[[Callable[[], object]], None], main_thread: int | None, /) -> None:
    """Stores the function that puts Ctrl-C off, and the number of the main thread."""

def interruptible() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt in any line of this thread."""

def flight_note(kind: int, device: int, id: int, code: int, value: int, /) -> None:
    """Adds a record to the flight recorder; a negative device means none."""

def flight_batch(device: int, rows: int, items: list[Any], began: float, /) -> int:
    """Adds a record of a batch that begins. Returns the number of the batch."""

def flight_items(device: int, batch: int, items: list[Any], code: int, /) -> None:
    """Adds a record for each item of a batch that has its outcome."""

def pinned_in_use() -> int:
    """The number of blocks of pinned memory that are in use or still to be freed, without those in a cache."""

def site() -> tuple[CodeType, int, str]:
    """The instruction of the caller's code that called aioacl: its code object, its offset and its module."""

NOT_STARTED: str
DONE: str

