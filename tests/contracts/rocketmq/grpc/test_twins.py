"""The proxy in memory is like RocketMQ's: one script on the model and on a real one, and both see the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contracts.rocketmq.grpc.lab import AGAIN_S
from tests.contracts.rocketmq.grpc.stories import story
from tests.contracts.rocketmq.grpc.twins import on_model, on_server, said

if TYPE_CHECKING:
    from tests.contracts.rocketmq.grpc.lab import Lab
    from tests.contracts.rocketmq.grpc.twins import Script, Stage
    from tests.harness.witness import Seen


def a_lease_ends(stage: Stage) -> Seen:
    stage.send("x")
    one = stage.consumer()
    first = one.take()
    again = one.take()
    return [said(first), said(again), one.acknowledge(first), one.acknowledge(again), one.comes()]


def a_lease_ends_and_is_renewed_too_late(stage: Stage) -> Seen:
    stage.send("x")
    one = stage.consumer()
    first = one.take()
    one.sleep(AGAIN_S)
    late, _ = one.hide(first)
    again = one.take()
    return [said(first), late, said(again), one.acknowledge(again), one.comes()]


def a_renewal(stage: Stage) -> Seen:
    stage.send("x")
    one = stage.consumer()
    first = one.take()
    verdict, renewed = one.hide(first)
    by_old = one.acknowledge(first)
    again = one.take()
    return [verdict, by_old, said(again), one.acknowledge(renewed), one.acknowledge(again), one.comes()]


def renewals_one_after_the_other(stage: Stage) -> Seen:
    stage.send("x")
    one = stage.consumer()
    held, seen = one.take(), []
    for _ in range(4):
        one.sleep(5.0)
        verdict, held = one.hide(held)
        seen.append(verdict)
    return [*seen, one.acknowledge(held), one.comes()]


def two_renewals_by_one_receipt(stage: Stage) -> Seen:
    stage.send("x")
    one = stage.consumer()
    first = one.take()
    (verdict, _), (second, last) = one.hide(first), one.hide(first)
    done = one.acknowledge(last)
    again = one.take()
    return [verdict, second, done, said(again), one.acknowledge(again), one.comes()]


def an_acknowledgement_twice(stage: Stage) -> Seen:
    stage.send("x")
    one = stage.consumer()
    first = one.take()
    twice = [one.acknowledge(first), one.acknowledge(first)]
    one.sleep(AGAIN_S)
    return [*twice, one.acknowledge(first), one.comes()]


def a_renewal_after_the_acknowledgement(stage: Stage) -> Seen:
    stage.send("x")
    one = stage.consumer()
    first = one.take()
    done = one.acknowledge(first)
    verdict, _ = one.hide(first)
    return [done, verdict, one.comes()[:1]]


def one_gives_back_and_another_has_it(stage: Stage) -> Seen:
    stage.send("x")
    one, two = stage.consumer(), stage.consumer()
    first = one.take()
    hidden = two.comes(2.0)
    verdict, _ = one.hide(first, 0)
    again = two.take()
    return [said(first), hidden, verdict, said(again), two.acknowledge(again), two.comes()]


def one_is_too_late_and_another_has_it(stage: Stage) -> Seen:
    stage.send("x")
    one, two = stage.consumer(), stage.consumer()
    first = one.take()
    again = two.take()
    late = one.acknowledge(first)
    return [said(again), late, two.acknowledge(again), two.comes(), one.comes()]


def several_are_acknowledged_together(stage: Stage) -> Seen:
    for value in "xyz":
        stage.send(value)
    one = stage.consumer()
    taken = sorted((one.take() for _ in range(3)), key=said)
    return [*map(said, taken), one.acknowledge(*taken[:2]), said(one.take())]


def a_producer_sends_once_more(stage: Stage) -> Seen:
    stage.send("x", name="0A")
    stage.send("x", name="0A")
    one = stage.consumer()
    first, copy = one.take(), one.take()
    same = first.name[1] == copy.name[1]
    return [said(first), said(copy), same, one.acknowledge(first), said(one.take())]


def _same(lab: Lab, script: Script) -> None:
    assert on_model(script) == on_server(lab, script)


@story
def test_a_lease_ends(lab: Lab) -> None:
    _same(lab, a_lease_ends)


@story
def test_a_lease_ends_and_is_renewed_too_late(lab: Lab) -> None:
    _same(lab, a_lease_ends_and_is_renewed_too_late)


@story
def test_a_renewal(lab: Lab) -> None:
    _same(lab, a_renewal)


@story
def test_renewals_one_after_the_other(lab: Lab) -> None:
    _same(lab, renewals_one_after_the_other)


@story
def test_two_renewals_by_one_receipt(lab: Lab) -> None:
    _same(lab, two_renewals_by_one_receipt)


@story
def test_an_acknowledgement_twice(lab: Lab) -> None:
    _same(lab, an_acknowledgement_twice)


@story
def test_a_renewal_after_the_acknowledgement(lab: Lab) -> None:
    _same(lab, a_renewal_after_the_acknowledgement)


@story
def test_one_gives_back_and_another_has_it(lab: Lab) -> None:
    _same(lab, one_gives_back_and_another_has_it)


@story
def test_one_is_too_late_and_another_has_it(lab: Lab) -> None:
    _same(lab, one_is_too_late_and_another_has_it)


@story
def test_several_are_acknowledged_together(lab: Lab) -> None:
    _same(lab, several_are_acknowledged_together)


@story
def test_a_producer_sends_once_more(lab: Lab) -> None:
    _same(lab, a_producer_sends_once_more)
