"""Programs that end while coroutines are pending.

The interpreter finalizes these coroutines while it ends. Where a coroutine is kept decides in which phase this happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._digits import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable

STATUS: Final = 7
OUTPUT: Final = "pending"
LOOPS: Final = ("asyncio", "uvloop", "trio")

# The body of a coroutine. No work of `stream` and of the model ever ends.
KINDS: Final = {
    "a lease": "async with device.lease(): await hanging()",
    "a stream": "await stream",
    "a device": "await device.synchronize()",
    "an upload": "await stream.upload(memory, bytes(64))",
    "a call": "await model(rows)",
    "a map": "async with model.map([rows] * 8) as results: await anext(results)",
    "a job": "await device.run(threading.Event().wait)",
    "events": "await anext(device.events())",
    "blocks": "async with device.create_stream(), device.allocate(64), device.pinned(64): await hanging()",
    **{
        f"{name} in a finally": f"try: await hanging()\n    finally: {use}"
        for name, use in {
            "an await": "await stream",
            "a close": "await stream.close()",
            "a stream": "await device.create_stream()",
            "a lease": "await device.lease().__aenter__()",
            "an upload": "await stream.upload(memory, bytes(64))",
            "a call": "await model(rows)",
            "a reset": "await device.force_reset()",
            "an open": "await open_device(1)",
            "a result()": "stream.close().result()",
        }.items()
    },
}

_KEEP: Final = {
    # cleared together with the module
    "in a global": "kept = things()",
    # found by the last search for garbage
    "in a cycle": "cycle = things()\ncycle.append(cycle)\ndel cycle",
    # cleared together with the state of the thread, when there are no modules any more
    "in the context": "contextvars.ContextVar('kept').set(things())",
}
PLACES: Final = tuple(_KEEP)

_PROGRAM: Final = """
import contextvars, inspect, queue
{coroutines}
made, hangs = [{names}], []
rows = memoryview(bytes(256)).cast("f", (1, 64))
hanging_kinds = {hanging}

async def hanging():
    hangs.append(None)
    await anyio.Event().wait()

async def until_pending(coroutines):
    states = None
    while states != {{inspect.CORO_SUSPENDED}} or len(hangs) < hanging_kinds:
        await anyio.sleep(0.001)
        states = {{inspect.getcoroutinestate(each) for each in coroutines}}
    say("{output}")

def on_trio(coroutines):
    "Runs trio in guest mode, and stops calling its turns."
    import trio
    turns, over = queue.SimpleQueue(), []
    async def wait_for(coroutine):
        await coroutine
    async def main():
        async with trio.open_nursery() as nursery:
            for each in coroutines:
                nursery.start_soon(wait_for, each)
            await until_pending(coroutines)
            over.append(None)
            await hanging()
    trio.lowlevel.start_guest_run(main, run_sync_soon_threadsafe=turns.put, done_callback=over.append)
    while not over:
        turns.get()()
    return turns

def on_asyncio(coroutines):
    if os.environ["TEST_BACKEND"] == "uvloop":
        import uvloop
        loop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    tasks = [loop.create_task(each) for each in coroutines]
    loop.run_until_complete(until_pending(coroutines))
    return loop, tasks

def things():
    use_library("simulator")
    device = open_device(0).result()
    stream, memory = device.create_stream().result(), device.allocate(64).result()
    model = device.load_model({model!r}, slots=1).result()
    for held in (stream, *model._life.load._streams):
        simulator.hold(held)
    stream.fill(memory, 1)
    coroutines = [make(device, stream, memory, model) for make in made]
    run = on_trio if os.environ["TEST_BACKEND"] == "trio" else on_asyncio
    return [run(coroutines), coroutines]

{keep}
{end}
"""


def program(kinds: Iterable[str], place: str, end: str = f"sys.exit({STATUS})") -> str:
    """The program, for a child process whose backend is one of LOOPS. It has a coroutine for each of the kinds.

    `end` is its last statement.
    """
    bodies = [KINDS[kind] for kind in kinds]
    coroutines = [
        f"async def kind_{index}(device, stream, memory, model):\n    {body}"
        for index, body in enumerate(bodies)
    ]
    return _PROGRAM.format(
        coroutines="\n".join(coroutines),
        names=", ".join(f"kind_{index}" for index in range(len(bodies))),
        hanging=sum("hanging()" in body for body in bodies),
        model=str(MODEL),
        output=OUTPUT,
        keep=_KEEP[place],
        end=end,
    )
