"""The keys of items are objects of the program: what their hashes and comparisons do concerns no other key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from aioacl import ParameterError, QueueFull
from aioacl._batches.keys import key_of
from tests.kit import Waiting, raises, until
from tests.support.batching import ByHand, batching, tasks

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop_in_ci]


class Incomparable:
    """As a frozen dataclass with an array of NumPy: the comparison of two raises ValueError."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


class Unhashable:
    def __hash__(self) -> int:
        raise ValueError("no hash")


@dataclass(frozen=True)
class Tenant:
    name: str


@pytest.mark.parametrize("limit_per_key", [None, 32])
async def test_keys_whose_comparison_raises_fail_no_item(limit_per_key: int | None) -> None:
    hand, keys = ByHand(), [Incomparable(), Incomparable(), "other", 1]
    with batching(hand, in_flight=1, limit=33, limit_per_key=limit_per_key) as infer:
        async with tasks() as group:
            calls = [Waiting(group, lambda: infer(0))]
            await until(lambda: hand.begun)
            for number, key in enumerate(keys, 1):
                calls.append(Waiting(group, lambda number=number, key=key: infer(number, key=key)))  # type: ignore[misc]  # mypy infers no type for a lambda with a default
            await until(lambda: infer.waiting == len(keys))
            cancelled = Waiting(group, lambda: infer(9, key=keys[0]))
            await until(lambda: infer.waiting == len(keys) + 1)
            await cancelled.cancel_and_wait()
            hand.end()
            hand.end()
        assert [call.value for call in calls] == [0, 1, 2, 3, 4]
        assert [sorted(calls) for calls in hand.log] == [[0], [1, 2, 3, 4]]


async def test_key_whose_hash_raises_is_refused_in_the_call() -> None:
    with (
        batching(ByHand()) as infer,
        pytest.raises(ParameterError, match=r"key must be hashable.*raises ValueError"),
    ):
        infer(1, key=Unhashable())


async def test_equal_keys_of_a_class_of_the_program_are_one_key() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1, limit_per_key=32) as infer:
        async with tasks() as group:
            calls = [Waiting(group, lambda: infer((0, 32, None), key=Tenant("a")))]
            await until(lambda: hand.begun)
            calls.append(Waiting(group, lambda: infer((1, 32, None), key=Tenant("a"))))
            await until(lambda: infer.waiting == 32)
            await raises(QueueFull, infer((2, 1, None), key=Tenant("a"), wait=False))
            calls.append(Waiting(group, lambda: infer((3, 1, None), key=Tenant("b"), wait=False)))
            await until(lambda: infer.waiting == 33)
            for _ in range(3):
                hand.end()
        assert [call.value[0] for call in calls] == [0, 1, 3]


@pytest.mark.parametrize("key", ["a", 1, None, b"a", 1.5, ("a", 1), True])
async def test_keys_of_plain_classes_are_used_as_they_are(key: Any) -> None:
    assert key_of(key) is key


async def test_key_of_a_class_of_the_program_equals_the_same_plain_key() -> None:
    class Name(str):
        __slots__ = ()

    one, plain = key_of(Name("a")), key_of("a")
    assert (one == plain, plain == one, hash(one) == hash(plain)) == (True, True, True)
    assert one != key_of(Name("b"))
