"""Laws of a run's residence in a process, on a model of one run, its store and the tasks of the shell.

The model lets everything happen at any moment: input with and without news of it, failures of the store before and
after it has written, other processes, full memory. In each world that it reaches it asks whether the laws hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from loom.runtime.durable.residence import ABSENT, BUSY, IN_MEMORY, TABLE, Fact, Slot, State, transition


class World(NamedTuple):
    """One run, as its store and one process have it."""

    slot: Slot = ABSENT
    task: str = ""
    """What holds the slot: start, claim, message claim, load, replay, park, release or drain."""
    fetch: str = ""
    """A task that reads the run's messages: for the run that is `here`, or for one that is `gone` since."""
    in_memory: bool = False
    at_rest: bool = False
    commit: bool = False
    """A commit is in flight."""
    place: bool = False
    queued: bool = False
    tracked: bool = False
    owner: str = ""
    """The process that the store has as the owner: me, other, or none."""
    running: bool = False
    """The store has the run, and it is not over."""
    due: bool = False
    """The store has acknowledged input that no process has read."""
    told: bool = False
    """The run was told of input, and has not committed it."""
    room: bool = True


SEEN: set[tuple[State, Fact]] = set()
"""The facts that the model has told, each with the state that it came in."""


def tell(world: World, fact: Fact) -> World:
    """Do what the shell does with a fact."""
    SEEN.add((world.slot.state, fact))
    slot, actions = transition(world.slot, fact)
    world = world._replace(slot=slot)
    for action in actions:
        world = ACTIONS[action](world)
    return world


def _claim(world: World) -> World:
    assert not world.task, "no run is claimed while another task holds it"
    assert not world.in_memory
    assert not world.commit, "no run is claimed before the commit of its last stay has settled"
    return world._replace(task="claim")


def _fetch(world: World) -> World:
    assert world.in_memory
    return world._replace(fetch="here")


def _forget(world: World) -> World:
    assert world.in_memory
    fetch, due = "gone" if world.fetch else "", world.due or world.told
    return world._replace(in_memory=False, at_rest=False, tracked=False, told=False, fetch=fetch, due=due)


ACTIONS: dict[str, Callable[[World], World]] = {
    "claim": _claim,
    "fetch": _fetch,
    "track": lambda world: world._replace(tracked=True),
    "untrack": lambda world: world._replace(tracked=False),
    "dequeue": lambda world: world._replace(queued=False),
    "forget": _forget,
    "free": lambda world: world._replace(place=False),
}


# -- what may happen: each function returns the worlds that may follow -------------------------------------------------


def callers(world: World) -> list[World]:
    """Somebody starts the run, or sends it something, or looks for a start that may have been stored."""
    found = []
    if not world.running:
        if world.slot == ABSENT and world.room and not world.owner:
            found.append(tell(world._replace(task="start", place=True), "start expected"))
        stored = world._replace(running=True, due=True, owner="")
        found += [stored, tell(stored, "notified"), tell(stored, "start unsure"), tell(world, "start unsure")]
        return found
    posted = world._replace(due=True)
    found += [posted, tell(posted, "notified"), tell(world, "start unsure")]
    if world.slot == ABSENT and not world.owner and world.room:
        found.append(tell(posted._replace(task="message claim", place=True), "message expected"))
    return found


def others(world: World) -> list[World]:
    """Another process takes the run, ends it, or dies with it; memory is full here, or has room."""
    found = [world._replace(room=not world.room)]
    if world.running and not world.owner:
        found.append(world._replace(owner="other"))
    if world.owner == "other":
        found += [world._replace(owner=""), world._replace(owner="", due=False, running=False)]
    return found


def scans(world: World) -> list[World]:
    """The scanner finds that the store works. It does not look for all that is owned: that is for a failing scanner."""
    if world.slot.is_stranded:
        world = tell(world, "scanned")
    if world.owner == "me" and world.in_memory and (world.due or world.told):
        world = tell(world, "notified")
    if world.queued and world.room:
        world = tell(world._replace(queued=False), "notified")
    if world.running and not world.owner and world.due and world.room:
        world = tell(world._replace(owner="me"), "notified")
    return [world]


def claims(world: World) -> list[World]:
    """The task that claims has an answer."""
    if world.task not in ("claim", "message claim"):
        return []
    done = world._replace(task="")
    failed = [tell(done, "store failed")]
    if world.running and not world.owner:
        failed.append(tell(done._replace(owner="me"), "store failed"))
    if not world.running or world.owner == "other":
        return [*failed, tell(done, "given up")]
    parking = tell(done._replace(task="park", due=False), "cannot go on")
    if world.task == "claim" and not world.room:
        freed = done._replace(queued=True, owner="")
        return [*failed, parking, tell(freed, "no room"), tell(done._replace(queued=True), "store failed")]
    return [*failed, parking, tell(done._replace(task="load", place=True, owner="me"), "claimed")]


def loads(world: World) -> list[World]:
    """The store has given what it has of the run, or it is set in motion."""
    done = world._replace(task="")
    parking = world._replace(task="park", due=False, told=False)
    if world.task == "load":
        if not world.running:
            return [tell(done, "given up")]
        read = world._replace(task="replay", due=False, told=world.due)
        purged = done._replace(running=False, due=False, owner="")
        return [read, tell(done, "store failed"), tell(parking, "cannot go on"), tell(purged, "given up")]
    if world.task == "replay":
        begun = tell(done._replace(in_memory=True), "begun")
        broken = tell(tell(begun, "begin failed")._replace(task="park", due=False), "cannot go on")
        resting = tell(begun._replace(at_rest=True), "rested")
        return [
            begun,
            broken,
            resting,
            tell(resting, "begin failed")._replace(task="load"),
            tell(parking, "cannot go on"),
        ]
    return []


def starts(world: World) -> list[World]:
    """The store has answered a start that is to begin here."""
    if world.task != "start":
        return []
    done, stored = world._replace(task=""), world._replace(task="", running=True, due=True, owner="me")
    begun = tell(stored._replace(in_memory=True, due=False, told=True), "begun")
    broken = tell(tell(tell(begun, "begin failed"), "notified"), "start done")
    unsure = [tell(tell(each, "store failed"), "start done") for each in (done, stored)]
    return [tell(done, "start done"), tell(begun, "start done"), broken, *unsure]


def parks(world: World) -> list[World]:
    """The store has answered a task that parks the run."""
    if world.task != "park":
        return []
    if world.commit:
        return [world._replace(commit=False)]
    done = world._replace(task="")
    return [
        tell(done._replace(owner=""), "parked"),
        tell(done, "store failed"),
        tell(done._replace(owner=""), "given up"),
    ]


def works(world: World) -> list[World]:
    """The run in memory does something."""
    if not world.in_memory:
        return []
    return [*moves(world), leaves(world._replace(task="", owner=""), "left")]  # the event loop may end at any time


def moves(world: World) -> list[World]:
    """The run in memory goes on, rests, ends or breaks, or the store refuses or fails its commit."""
    if world.commit:
        settled = world._replace(commit=False)
        free = settled._replace(task="")
        found = [settled._replace(told=False), tell(free, "commit failed")]
        return [*found, tell(free._replace(owner="other"), "fenced"), tell(free._replace(owner=""), "fenced")]
    found = [world._replace(commit=True, at_rest=False) if not world.at_rest else stirs(world)]
    if not world.at_rest:
        found.append(tell(world._replace(at_rest=True), "rested"))
        found.append(tell(world._replace(task="", running=False, told=False, owner="", due=False), "left"))
        found.append(tell(world._replace(task="park", told=False, due=False), "cannot go on"))
    elif world.task != "release":
        found.append(world._replace(tracked=False))  # its turn to leave has come, and passed
        found.append(tell(world._replace(task="release"), "release wanted"))
    return found


def stirs(world: World) -> World:
    """A timer is due, or a message was delivered."""
    stirred = world._replace(at_rest=False)
    return tell(stirred, "stirred") if world.slot.state == "idle" else stirred


def releases(world: World) -> list[World]:
    """The store has answered a release."""
    if world.task != "release":
        return []
    done = world._replace(task="")
    found = [tell(done, "release failed")]
    for owner in ("me", ""):
        found.append(leaves(done._replace(owner=owner), "release unsure"))
    if world.due or world.told or world.owner != "me":
        return [*found, tell(done, "release refused")]
    gone = done._replace(owner="")
    return [*found, leaves(gone if world.at_rest else tell(gone, "stirred"), "left")]


def leaves(world: World, fact: Fact) -> World:
    if not world.commit:
        return tell(world, fact)
    return tell(world._replace(task="drain"), "left mid-commit" if fact == "left" else "release unsure mid-commit")


def drains(world: World) -> list[World]:
    """The commit of a run that has left memory is durable, or has failed."""
    if world.task != "drain":
        return []
    return [tell(world._replace(task="", commit=False), "commit settled")]


def fetches(world: World) -> list[World]:
    """The store has given the messages of the run, or has failed."""
    if not world.fetch:
        return []
    done = world._replace(fetch="")
    if world.fetch == "here":
        broken = tell(world._replace(task="park", fetch="", due=False, told=False), "cannot go on")
        return [delivered(done), tell(done, "messages unread"), broken]
    return [tell(done, "notified") if world.due else done, tell(done, "messages unread")]


def delivered(world: World) -> World:
    if world.due:
        return stirs(world._replace(due=False, told=True))
    return tell(world, "rested") if world.at_rest and not world.tracked else world


CHOICES = (callers, others, scans, claims, loads, starts, parks, works, releases, drains, fetches)


def following(world: World) -> list[World]:
    return [after for choice in CHOICES for after in choice(world)]


# -- the laws ----------------------------------------------------------------------------------------------------------


def in_good_weather(world: World) -> World:
    """Let all that is under way succeed, and the scanner look now and then, as long as that changes anything."""
    world = world._replace(room=True)
    for _ in range(20):
        if world.task in ("claim", "message claim"):
            world = claims(world)[-1]
        elif world.task in ("load", "replay"):
            world = loads(world)[0]
        elif world.task == "start":
            world = starts(world)[1]
        elif world.task in ("release", "park", "drain"):
            world = [*releases(world), *parks(world)[:1], *drains(world)][-1]
        elif world.fetch:
            world = fetches(world)[0]
        elif world.commit:
            world = moves(world)[0] if world.in_memory else drains(world)[0]
        else:
            world = scans(world)[0]
    return world


def check(world: World) -> None:
    state = world.slot.state
    assert world.in_memory == (state in IN_MEMORY)
    assert bool(world.task) == (state in BUSY)
    assert not (world.tracked and not world.in_memory)
    if world.in_memory or state == "loading":
        assert world.place
    if state == "absent":
        assert world.slot == ABSENT
        assert not any((world.place, world.queued, world.tracked, world.in_memory, world.commit, world.task))
    later = in_good_weather(world)
    assert not later.due or later.owner == "other" or not later.running, later


@given(st.lists(st.integers(0, 1_000), max_size=60))
def test_input_has_a_way_to_a_load_nothing_is_loaded_twice_and_an_absent_run_holds_nothing(choices: list[int]) -> None:
    world = World()
    for choice in choices:
        worlds = following(world)
        world = worlds[choice % len(worlds)]
        check(world)


def test_the_laws_hold_in_every_world_and_every_row_is_seen() -> None:
    SEEN.clear()
    known, new = {World()}, [World()]
    while new:
        world = new.pop()
        check(world)
        found = set(following(world)) - known
        known |= found
        new += found
    missing = [row for row in TABLE if (row.before, row.fact) not in SEEN]
    assert missing == [], [(row.before, row.fact) for row in missing]
    assert len(known) > 500
