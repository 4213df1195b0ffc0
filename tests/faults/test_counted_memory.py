"""The memory that the broker counts as held follows the memory that it really uses, however a client fills it.

`memory_limit` is only as good as this count. Each way to fill memory is a row of `WAYS`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import islice

import pytest

from tests.support import acks, frames
from tests.support.clients import StartBroker
from tests.support.diagnostics import answer
from tests.support.probes import memory_kib
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire

FACTOR = 1.5
SLACK = 16 << 20
"""What the process uses besides, and what the allocator keeps for a short time."""
LONG = 10_000
"""Nearly the longest header line."""
TIMEOUT_S = 40.0


def connected(broker: BrokerProcess) -> Wire:
    """Returns a new session."""
    wire = Wire(broker.port, timeout=TIMEOUT_S)
    wire.connect()
    return wire


def held_bytes(broker: BrokerProcess) -> int:
    """Returns the broker's count."""
    with connected(broker) as wire:
        held: int = answer(wire, "memory")["held_bytes"]
        wire.disconnect()
        return held


def push(wire: Wire, all_frames: Iterable[bytes]) -> Wire:
    """Sends many frames and waits until the last one is processed."""
    left = iter(all_frames)
    while some := list(islice(left, 100)):
        wire.send(*some)
    wire.send_and_wait("/topic/last")
    return wire


def long_name(start: str, number: int, end: str = "") -> str:
    """Returns a name of maximum length."""
    return f"{start}{number}-".ljust(LONG - len(end), "n") + end


def topics_with_long_names(broker: BrokerProcess) -> list[Wire]:
    return [push(connected(broker), (frames.subscribe(long_name("/topic/", at), f"{at}") for at in range(9_900)))]


def patterns_with_long_names(broker: BrokerProcess) -> list[Wire]:
    names = (long_name("/topic/", at, "/>") for at in range(5_000))
    return [push(connected(broker), (frames.subscribe(name, f"{at}") for at, name in enumerate(names)))]


def patterns_with_many_segments(broker: BrokerProcess) -> list[Wire]:
    names = (f"/topic/{at}" + "/*/b" * 2_400 for at in range(200))
    return [push(connected(broker), (frames.subscribe(name, f"{at}") for at, name in enumerate(names)))]


def ids_of_maximum_length(broker: BrokerProcess) -> list[Wire]:
    return [push(connected(broker), (frames.subscribe("/topic/one", long_name("", at)) for at in range(5_000)))]


def many_short_subscriptions(broker: BrokerProcess) -> list[Wire]:
    wires = [connected(broker) for _ in range(15)]
    for number, wire in enumerate(wires):
        push(wire, (frames.subscribe(f"/topic/{number}/{at}", f"{at}") for at in range(9_900)))
    return wires


def many_subscriptions_with_acknowledgements(broker: BrokerProcess) -> list[Wire]:
    wires = [connected(broker) for _ in range(10)]
    for wire in wires:
        push(wire, (frames.subscribe("/topic/one", f"{at}", ack="client") for at in range(9_900)))
    return wires


def names_of_open_transactions(broker: BrokerProcess) -> list[Wire]:
    names = (frames.begin(long_name("", at)) for at in range(5_000))
    return [push(connected(broker), names)]


def acknowledgements_in_a_transaction(broker: BrokerProcess) -> list[Wire]:
    wire = connected(broker)
    wire.send(frames.subscribe("/queue/jobs", "s", ack="client-individual"), frames.send("/queue/jobs", "x"))
    delivery = wire.expect_message()
    wire.send(frames.begin("t"))
    frame = acks.ack(wire, delivery, transaction="t")
    return [push(wire, (frame for _ in range(1_000_000)))]


def names_without_subscribers(broker: BrokerProcess) -> list[Wire]:
    return [push(connected(broker), (frames.send(long_name("/topic/", at)) for at in range(30_000)))]


def consumers_of_many_queues(broker: BrokerProcess) -> list[Wire]:
    consumer, publisher = connected(broker), connected(broker)
    push(consumer, (frames.subscribe("/queue/>", f"{at}", ack="client", prefetch_count=1) for at in range(1_000)))
    return [consumer, push(publisher, (frames.send(f"/queue/{at}", "x") for at in range(20_000)))]


def patterns_of_many_queues(broker: BrokerProcess) -> list[Wire]:
    """Subscribes to 128 patterns that match every queue."""
    consumer, publisher = connected(broker), connected(broker)
    wild = [[("*" if number >> at & 1 else "x") for at in range(7)] for number in range(128)]
    push(consumer, (frames.subscribe(f"/queue/{'/'.join(one)}/*", "".join(one), ack="client") for one in wild))
    return [consumer, push(publisher, (frames.send(f"/queue/{'x/' * 7}{at}", "x") for at in range(10_000)))]


def temporary_queues_with_long_names(broker: BrokerProcess) -> list[Wire]:
    names = (long_name("/temp-queue/", at)[: LONG - 100] for at in range(5_000))
    return [push(connected(broker), (frames.send("/topic/one", reply_to=name) for name in names))]


def temporary_topics_with_long_names(broker: BrokerProcess) -> list[Wire]:
    names = (long_name("/temp-topic/", at)[: LONG - 100] for at in range(5_000))
    return [push(connected(broker), (frames.send("/topic/one", reply_to=name) for name in names))]


def subscribed_temporary_queues(broker: BrokerProcess) -> list[Wire]:
    names = (long_name("/temp-queue/", at)[: LONG - 100] for at in range(5_000))
    return [push(connected(broker), (frames.subscribe(name, f"{at}") for at, name in enumerate(names)))]


def stale_messages_with_long_names(broker: BrokerProcess) -> list[Wire]:
    return [push(connected(broker), (frames.send(long_name("#", at)) for at in range(10_000)))]


def short_stale_messages(broker: BrokerProcess) -> list[Wire]:
    return [push(connected(broker), (frames.send(f"/topic/{at}", "x") for at in range(300_000)))]


def retained_messages_with_long_names(broker: BrokerProcess) -> list[Wire]:
    names = (long_name("/topic/", at) for at in range(10_000))
    return [push(connected(broker), (frames.send(name, retain="set", ttl=3_600_000) for name in names))]


def deliveries_in_flight(broker: BrokerProcess) -> list[Wire]:
    consumer, publisher = Wire(broker.port, timeout=TIMEOUT_S), connected(broker)
    consumer.connect("1.1")
    consumer.subscribe("/topic/one", "s", ack="client-individual", prefetch_count=0)
    return [consumer, push(publisher, (frames.send("/topic/one", "x" * 100) for _ in range(100_000)))]


WAYS: list[Callable[[BrokerProcess], list[Wire]]] = [
    topics_with_long_names,
    patterns_with_long_names,
    patterns_with_many_segments,
    ids_of_maximum_length,
    many_short_subscriptions,
    many_subscriptions_with_acknowledgements,
    names_without_subscribers,
    names_of_open_transactions,
    acknowledgements_in_a_transaction,
    consumers_of_many_queues,
    patterns_of_many_queues,
    temporary_queues_with_long_names,
    temporary_topics_with_long_names,
    subscribed_temporary_queues,
    deliveries_in_flight,
]


OUTLIVING: list[Callable[[BrokerProcess], list[Wire]]] = [
    stale_messages_with_long_names,
    short_stale_messages,
    retained_messages_with_long_names,
]
"""What stays after the client has gone."""


def clients_that_come_and_go(broker: BrokerProcess) -> list[Wire]:
    """Each round opens one connection of each kind at the same time; most connections end while others begin."""
    choose, held = random.Random(1), []
    kinds: list[Callable[[str], bytes]] = [
        lambda name: frames.subscribe(f"/queue/{name}", name),
        lambda name: frames.subscribe(f"/temp-queue/{name}", name),
        lambda name: frames.subscribe(f"/topic/{name}", name),
        lambda name: frames.send("/topic/nobody", reply_to=f"/temp-queue/{name}"),
        lambda name: frames.subscribe(f"/queue/{name}/>", name),
    ]
    for turn in range(14):
        wires = [(connected(broker), kind) for kind in choose.sample(kinds, len(kinds))]
        for part in range(30):
            for wire, kind in wires:
                count = 50 if kind is kinds[-1] else 200
                wire.send(*(kind(f"{turn}-{part * count + at}") for at in range(count)))
            for wire, _ in wires:
                wire.barrier()
        held += [wire for wire, _ in wires]
        choose.shuffle(held)
        for wire in held[5:]:
            wire.discard()
        del held[5:]
    for wire in held:
        wire.discard()
    return []


def check(broker: BrokerProcess, fill: Callable[[BrokerProcess], list[Wire]], slack: int = SLACK) -> int:
    """Fills memory and checks that the count follows. Returns the count before, after the clients have gone."""
    counted_before, resident_before = held_bytes(broker), memory_kib(broker.pid) << 10
    wires = fill(broker)
    grown: list[tuple[int, int]] = []

    def follows() -> bool:
        counted, resident = held_bytes(broker) - counted_before, (memory_kib(broker.pid) << 10) - resident_before
        grown.append((counted >> 20, resident >> 20))
        return counted <= FACTOR * resident + slack and resident <= FACTOR * counted + slack

    try:
        eventually(follows, "the count follows the memory")
    finally:
        print(f"{fill.__name__}: {grown[-1][0]} MiB counted, {grown[-1][1]} MiB resident")
    for wire in wires:
        wire.discard()
    return counted_before


@pytest.mark.timeout(180)
@pytest.mark.parametrize("fill", WAYS)
def test_counted_memory_follows_resident_memory(
    start_broker: StartBroker, fill: Callable[[BrokerProcess], list[Wire]]
) -> None:
    broker = start_broker(memory_limit="2GiB", max_transactions=5_000, max_transaction_size="1GiB")
    counted_before = check(broker, fill)
    eventually(lambda: held_bytes(broker) - counted_before < SLACK * 3, "nothing is held for clients that have gone")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("fill", OUTLIVING)
def test_memory_that_outlives_its_client_is_counted(
    start_broker: StartBroker, fill: Callable[[BrokerProcess], list[Wire]]
) -> None:
    check(start_broker(memory_limit="2GiB", TTL="1h"), fill)


@pytest.mark.timeout(180)
def test_memory_of_clients_that_come_and_go_does_not_stay_resident(start_broker: StartBroker) -> None:
    """Besides what stays, the allocator keeps more: partly used pages of each kind."""
    check(start_broker(memory_limit="2GiB", writers=4), clients_that_come_and_go, slack=2 * SLACK)


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_a_subscription_is_refused_when_memory_has_no_room(start_broker: StartBroker, ack: str) -> None:
    broker = start_broker(memory_limit="64MiB")
    with connected(broker) as greedy, connected(broker) as other:
        other.subscribe("/topic/other")
        subscribe = (frames.subscribe(long_name("/topic/", at), f"{at}", ack=ack) for at in range(9_900))
        try:
            push(greedy, subscribe)
        except (ConnectionError, AssertionError):
            pass
        else:
            raise AssertionError("all 100 MB of names were accepted")
        other.send_and_wait("/topic/elsewhere")
        other.barrier()
    peak = memory_kib(broker.pid, "VmHWM")
    assert peak <= (64 + 64) << 10, f"peak {peak >> 10} MiB"
    with connected(broker) as late:
        late.subscribe("/topic/late")


def test_the_error_names_the_subscription_that_memory_has_no_room_for(start_broker: StartBroker) -> None:
    broker = start_broker(memory_limit="64MiB")
    with connected(broker) as wire:
        for at in range(9_900):
            wire.send(frames.subscribe(long_name("/topic/", at), f"{at}", receipt=f"{at}"))
            frame = wire.recv_frame()
            if frame.command == "ERROR":
                break
            assert (frame.command, frame["receipt-id"]) == ("RECEIPT", f"{at}")
        assert (frame["code"], frame["receipt-id"], frame["subscription"]) == ("E-MEMORY", f"{at}", f"{at}")
        assert b"memory_limit" in frame.body
        assert at > 1_000, f"only {at} subscriptions were accepted"
