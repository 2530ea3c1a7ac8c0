"""The clock of a search whose fits are made by several threads."""

import pytest

from choicegp.compute.progress import Clock


def test_a_clock_that_is_ended_interrupts_its_parts_and_no_other():
    clock = Clock(1e9)
    other = clock.of_another_thread()
    part = other.part().keeping(1.0)
    assert not clock.is_up
    assert not part.is_up
    other.end()
    for ended in (other, part, other.part()):
        with pytest.raises(KeyboardInterrupt):
            _ = ended.is_up
    assert not clock.is_up
    assert not clock.of_another_thread().is_up


def test_a_clock_of_another_thread_has_the_same_limit_and_memories_of_its_own():
    clock = Clock(0.0)
    clock.took["a step"] = 1.0
    other = clock.of_another_thread()
    assert other.is_up
    assert other.took == {"a step": 1.0}
    other.took["a step"] = 2.0
    other.end()
    assert clock.took == {"a step": 1.0}
    assert clock.is_up
