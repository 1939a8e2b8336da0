"""The sweep: kill points by the hundred, in runners side by side. `make kill` is its long form.

make kill                                      5,000 points on SQLite
make kill ARGS="--points 500 --seed 9"         other random points, fewer of them
make kill ARGS="--repeat 17/inside:4,time:0.05"  one point again, as a failure names it
make kill ARGS="--store postgres --points 300" on PostgreSQL
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kill_switch import PLACES, SQLITE_PLACES

RUNNER = Path(__file__).with_name("kill_runner.py")


class Points:
    """Which point is next: each place of the plain workload from its first time to its last; random ones from a seed.

    `places` says for each place which times are taken: every one, or every so-manieth. Places begin one after the
    other, so that three with every third time take every time between them. So many random points come in between, and
    behind, that there are `count` points in all.
    """

    def __init__(self, places: dict[str, int], seed: int, count: int) -> None:
        self._strides = places
        self._next = {place: 1 + number % stride for number, (place, stride) in enumerate(places.items())}
        self._seed = seed
        self._count = count
        self._given = 0

    def next(self) -> str | None:
        """A point, or None if there are enough."""
        if not self._next and self._given >= self._count:
            return None
        self._given += 1
        if self._next and self._given % 4:
            place = min(self._next, key=lambda name: self._next[name])
            number = self._next[place]
            self._next[place] += self._strides[place]
            return f"0/{place}:{number}"
        self._seed += 1
        return random_point(self._seed, tuple(self._strides))

    def missed(self, point: str) -> None:
        """The workload had ended before this point: it does not count, and its place has no more."""
        self._given -= 1
        seed, _, kill = point.partition("/")
        if seed == "0":
            self._next.pop(kill.partition(":")[0], None)


def random_point(seed: int, places: tuple[str, ...]) -> str:
    """Up to three processes are killed, one after the other: the next ones while they take up what is left."""
    chance = random.Random(seed)
    kills = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        place = chance.choice(["time", "time", *places])
        if place == "time":
            kills.append(f"time:{chance.uniform(0.0, 0.3):.4f}")
        else:
            kills.append(f"{place}:{chance.randint(1, 250 if place == 'statement' else 40)}")
    return f"{seed}/" + ",".join(kills)


@dataclass
class Report:
    """What a sweep has found."""

    points: int = 0
    kills: int = 0
    missed: int = 0
    seconds: float = 0.0
    places: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        places = ", ".join(f"{place} {count}" for place, count in sorted(self.places.items()))
        return (
            f"{self.points} kill points ({places}), {self.kills} processes killed, {len(self.failures)} failures, "
            f"{self.seconds:.0f} s"
        )


class Sweep:
    """Runs points in several runners at once."""

    def __init__(
        self, points: Points, urls: list[str], *, until: float | None = None, show: IO[str] | None = None
    ) -> None:
        self._points = points
        self._urls = urls
        self._until = until
        self._show = show
        self._turn = threading.Lock()
        self.report = Report()

    def run(self, max_failures: int = 5) -> Report:
        """All points, or until so many have failed."""
        began = time.monotonic()
        runners = [threading.Thread(target=self._work, args=(url, max_failures)) for url in self._urls]
        for runner in runners:
            runner.start()
        for runner in runners:
            runner.join()
        self.report.seconds = time.monotonic() - began
        return self.report

    def _work(self, url: str, max_failures: int) -> None:
        command = [sys.executable, str(RUNNER), url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
            assert runner.stdin is not None
            assert runner.stdout is not None
            while (point := self._next(max_failures)) is not None:
                runner.stdin.write(point + "\n")
                runner.stdin.flush()
                answer = runner.stdout.readline()
                self._note(point, answer)
                if not answer:
                    return

    def _next(self, max_failures: int) -> str | None:
        with self._turn:
            if len(self.report.failures) >= max_failures:
                return None
            if self._until is not None and time.monotonic() > self._until:
                return None
            return self._points.next()

    def _note(self, point: str, answer: str) -> None:
        outcome = json.loads(answer) if answer else {"kills": 0, "problems": ["the runner has died"]}
        with self._turn:
            report = self.report
            report.kills += outcome["kills"]
            if outcome["problems"]:
                lines = "\n  ".join(outcome["problems"])
                report.failures.append(f"kill point {point}\n  {lines}\n  repeat: make kill ARGS='--repeat {point}'")
                self._say(report.failures[-1])
            elif not outcome["kills"]:
                report.missed += 1
                self._points.missed(point)
                return
            report.points += 1
            report.places.update({kill.partition(":")[0] for kill in point.partition("/")[2].split(",")})
            if report.points % 100 == 0:
                self._say(f"{report.points} points, {len(report.failures)} failures; the last was {point}")

    def _say(self, line: str) -> None:
        if self._show is not None:
            self._show.write(f"{line}\n")
            self._show.flush()


class Given(Points):
    """One point, so many times."""

    def __init__(self, point: str, times: int) -> None:
        super().__init__({}, 0, times)
        self._point = point

    def next(self) -> str | None:
        """The point, again."""
        return self._point if super().next() is not None else None

    def missed(self, point: str) -> None:
        """Then it was not reached this time."""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Kill processes at every commit point and at random; check the rest.")
    parser.add_argument("--points", type=int, default=5000, help="how many (default: 5000)")
    parser.add_argument("--seed", type=int, default=0, help="where the random points begin (default: 0)")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default: 2)")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--repeat", metavar="POINT", help="one point, --times times (default: 10)")
    parser.add_argument("--times", type=int, default=10)
    arguments = parser.parse_args()
    places = SQLITE_PLACES if arguments.store == "sqlite" else PLACES
    points = Points(dict.fromkeys(places, 1), arguments.seed, arguments.points)
    if arguments.repeat:
        points = Given(arguments.repeat, arguments.times)
    until = time.monotonic() + 60 * arguments.minutes if arguments.minutes is not None else None
    report = Sweep(points, urls_for(arguments.store, arguments.jobs), until=until, show=sys.stdout).run()
    sys.stdout.write(f"{report}\n")
    return 1 if report.failures else 0


def urls_for(store: str, jobs: int) -> list[str]:
    """A database for each runner; on SQLite each point makes its own file."""
    if store == "sqlite":
        return [""] * jobs
    sys.path.insert(0, str(RUNNER.parents[1]))
    from postgres_server import fresh_database_url

    return [fresh_database_url() for _ in range(jobs)]


if __name__ == "__main__":
    sys.exit(main())
