"""Does hostile things to a real server, from a seed, and checks that it stays well.

    python tests/hostile/hostile_sweep.py [--minutes 10 | --cases N] [--seed S] [--postgres]

Flows, answers and bodies are made by chance. A server with limits gets them over HTTP, a few at a time. Beside it a
probe asks for its health. Then come bodies that hold the event loop, a stop, a check of the store, and a restart. What
must hold:

- the health route answers within 250 ms under hostile flows and answers, noise of the machine not counted;
- while hostile Python code runs in the process, the health port does;
- under a body that blocks the health port answers within 250 ms, and the log names run and step;
- memory stays under a bound, and the process never ends by itself;
- every run ends, is parked, or waits, with a reason; lists answer; the store verifies; nothing is lost by a restart.

A failure is printed with its seed, and with its case as JSON; `--case FILE` does that case alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1]))

from hostile_client import Attack, Outcome
from hostile_flows import Case, blocking_cases, make_case
from hostile_gauge import MEASURES
from hostile_probe import Probed
from hostile_server import WATCHDOG_S, HostileServer
from postgres_server import fresh_database_url

HEALTH_S = 0.25
"""Within which the health route answers."""
PEAK_BYTES = 1 << 30
"""What the server may have in memory at most."""
ROUND = 150
"""Cases that one store and one server get."""
AT_ONCE = 3
SIZE = 300_000
"""Bytes of the largest inputs."""


@dataclass
class Report:
    """What came of it."""

    seed: int
    cases: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    health: list[float] = field(default_factory=list)
    """Seconds of the health route under flows and answers, with the noise of the machine."""
    port: list[float] = field(default_factory=list)
    """Seconds of the health port under bodies that block, likewise."""
    control: list[float] = field(default_factory=list)
    """Seconds of a process beside that has nothing else to do."""
    own: float = 0.0
    """The longest time of either, noise not counted."""
    beside_bodies: list[float] = field(default_factory=list)
    """Seconds of the health route when it was slow beside hostile Python code, noise not counted."""
    over: int = 0
    """Gaps of more than 100 ms of CPU time."""
    peak: int = 0
    gap: tuple[float, float] = (0.0, 0.0)
    """The longest gap of the loop by CPU time of its thread: that time, and the wall time."""
    failures: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """All figures in a few lines."""
        ends = ", ".join(f"{count} {name}" for name, count in self.ends.most_common())
        return (
            f"seed {self.seed}: {self.cases} cases, {len(self.kinds)} kinds: {ends}\n"
            f"health route {_spread(self.health)}\n"
            f"health port under bodies that block {_spread(self.port)}\n"
            f"health route, slow beside hostile Python code: {len(self.beside_bodies)}, "
            f"at most {max(self.beside_bodies, default=0) * 1000:.0f} ms\n"
            f"control {_spread(self.control)}; longest of Loom's own {self.own * 1000:.0f} ms\n"
            f"peak memory {self.peak >> 20} MiB, longest loop gap {self.gap[0] * 1000:.0f} ms of CPU "
            f"({self.gap[1] * 1000:.0f} ms of time), {self.over} over 100 ms of CPU, {len(self.failures)} failures"
        )


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "not asked"
    ordered = sorted(seconds)
    shown = [ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1]]
    return "p50 {:.1f} ms, p99 {:.1f} ms, max {:.1f} ms of {}".format(*(1000 * each for each in shown), len(ordered))


class Sweep:
    """Rounds of cases, each on a store of its own."""

    def __init__(
        self, report: Report, *, at_once: int = AT_ONCE, on_postgres: bool = False, tell: bool = False
    ) -> None:
        self._report, self._at_once, self._on_postgres, self._tell = report, at_once, on_postgres, tell
        self._folder = Path()

    async def round(
        self, folder: Path, cases: dict[int, Case], blocking: list[Case], *, kill: bool = False, restarts: bool = True
    ) -> None:
        """Do all cases to one server, then those that block; then stop it or kill it, and perhaps start it again."""
        self._folder = folder
        server = HostileServer(folder, fresh_database_url() if self._on_postgres else f"sqlite:///{folder / 'runs.db'}")
        attack = Attack(server, self._report.failures)
        try:
            await server.start()
            await attack.begin()
            began = time.monotonic()
            await self._all(attack, cases)
            await attack.look()
            self._judge_health(server, attack, began, time.monotonic())
            for number, case in enumerate(blocking):
                await self._block(server, attack, number, case)
            before = await attack.statuses()
            await self._stop(server, kill=kill)
            if restarts:
                await self._restart(server, attack, before)
        finally:
            await attack.close()
            await server.close()
            self._report.peak = max(self._report.peak, server.peak)
        if server.peak > PEAK_BYTES:
            self._report.failures.append(f"The server had {server.peak >> 20} MiB in memory")

    async def _all(self, attack: Attack, cases: dict[int, Case]) -> None:
        left = list(cases.items())[::-1]

        async def work() -> None:
            while left:
                number, case = left.pop()
                self._count(await attack.make(number, case))

        await asyncio.gather(*(work() for _ in range(self._at_once)))

    def _count(self, outcome: Outcome) -> None:
        report = self._report
        report.cases += 1
        self._note(outcome)
        report.ends[outcome.end] += 1
        report.kinds[outcome.case.kind] += 1
        if outcome.failure:
            self._fail(outcome.failure, [outcome])
        if self._tell and report.cases % 50 == 0:
            ends = ", ".join(f"{count} {name}" for name, count in report.ends.most_common())
            print(f"{report.cases} cases: {ends}; {len(report.failures)} failures", flush=True)  # noqa: T201

    def _note(self, outcome: Outcome) -> None:
        """Keep a line for each case, for people who want to know what the cases come to."""
        line = [outcome.number, outcome.case.kind, outcome.end, round(outcome.ended - outcome.began, 2), outcome.detail]
        with (self._folder / "cases").open("a") as out:
            out.write(json.dumps(line) + "\n")

    def _fail(self, text: str, outcomes: list[Outcome]) -> None:
        self._report.failures.append("\n  ".join([text, *(self._shown(outcome) for outcome in outcomes)]))

    def _shown(self, outcome: Outcome) -> str:
        """A case as JSON; a long one is in a file."""
        path = self._folder / f"case-{outcome.number}.json"
        text = outcome.case.shown()
        path.write_text(text)
        cut = text if len(text) <= 1500 else f"{text[:800]} ..."
        return f"seed {self._report.seed}, case {outcome.number} ({path}): {cut}"

    def _judge_health(self, server: HostileServer, attack: Attack, began: float, ended: float) -> None:
        probes = [probe for probe in server.probes() if began <= probe.at <= ended]
        report = self._report
        main = [probe for probe in probes if probe.name == "main"]
        report.health += [probe.wall for probe in main]
        report.control += [probe.wall for probe in probes if probe.name == "control"]
        gaps = [gap for gap in server.gaps() if began <= gap[0] <= ended]
        report.gap = max([report.gap, *((gap[2], gap[1]) for gap in gaps)])
        report.over += sum(1 for gap in gaps if gap[2] > 0.1)
        for probe in main:
            held = max((gap[2] for gap in gaps if probe.at <= gap[0] <= probe.at + probe.wall + 0.1), default=0.0)
            own = max(probe.wall - probe.noise, min(held, probe.wall))
            report.own = max(report.own, own)
            if probe.status != "200" or own > HEALTH_S:
                beside = attack.between(probe.at, probe.at + probe.wall)
                if probe.status == "200" and any(outcome.case.runs_python for outcome in beside):
                    report.beside_bodies.append(own)
                else:
                    self._fail(_slow(probe, gaps), beside)
        for probe in probes:
            if probe.name == "health" and (probe.status != "200" or probe.wall - probe.noise > HEALTH_S):
                self._fail(_slow(probe, gaps), attack.between(probe.at, probe.at + probe.wall))

    async def _block(self, server: HostileServer, attack: Attack, number: int, case: Case) -> None:
        began = time.monotonic()
        outcome = await attack.make(f"block-{number}", case)
        self._count(outcome)
        probes = [probe for probe in server.probes() if probe.name == "health" and probe.at >= began]
        self._report.port += [probe.wall for probe in probes]
        self._report.own = max([self._report.own, *(probe.wall - probe.noise for probe in probes)])
        for probe in probes:
            if probe.status != "200" or probe.wall - probe.noise > HEALTH_S:
                self._fail(_slow(probe, []), [outcome])
        held = max((gap[1] for gap in server.gaps() if gap[0] >= began), default=0.0)
        told = [
            line
            for line in server.log_lines()
            if line.get("run_id") == outcome.run_id and line.get("step") == case.step
        ]
        if held > 2 * WATCHDOG_S and not any("has not turned" in line["message"] for line in told):
            self._fail(f"The log does not name what held the loop for {held:.1f} s", [outcome])

    async def _stop(self, server: HostileServer, *, kill: bool) -> None:
        """Stop the server, or kill it; its store is fine."""
        if not kill:
            (server.folder / MEASURES).unlink(missing_ok=True)
        code = await server.stop(signal.SIGKILL if kill else signal.SIGTERM)
        if not kill and code != 0:
            self._report.failures.append(f"The server ended with {code}: {server.log_tail()}")
        if wrong := await server.verify():
            self._report.failures.append(f"loom db verify: {wrong}")

    async def _restart(self, server: HostileServer, attack: Attack, before: dict[str, str]) -> None:
        """Start the server again; what it has acknowledged is there."""
        await server.start()
        await attack.look()
        after = await attack.statuses()
        for run_id, status in before.items():
            if status in ("completed", "failed", "cancelled") and after.get(run_id) != status:
                self._report.failures.append(f"{run_id} was {status}, and is {after.get(run_id)} after a restart")
            elif run_id not in after:
                self._report.failures.append(f"{run_id} is gone after a restart")
        (server.folder / MEASURES).unlink(missing_ok=True)
        await server.stop()


def _slow(probe: Probed, gaps: list[list[object]]) -> str:
    inside = [gap for gap in gaps if probe.at <= gap[0] <= probe.at + probe.wall + 0.5]  # type: ignore[operator]
    told = sorted(inside, key=lambda gap: -gap[2])[:2]  # type: ignore[operator]
    return (
        f"{probe.name}: {probe.status} after {probe.wall * 1000:.0f} ms, {probe.noise * 1000:.0f} of them noise"
        + "".join(f"\n  gap: {gap[1]:.3f} s, {gap[2]:.3f} s of CPU, {json.dumps(gap[4])[:1500]}" for gap in told)
    )


async def sweep(chosen: argparse.Namespace) -> Report:
    """Make rounds until there were enough cases, or the time is over."""
    report = Report(chosen.seed)
    made = Sweep(report, at_once=chosen.at_once, on_postgres=chosen.postgres, tell=True)
    ends_at = time.monotonic() + 60 * chosen.minutes
    if chosen.case:
        cases = {number: _read(path) for number, path in enumerate(chosen.case)}
        await made.round(_folder(chosen.folder), cases, [])
        return report
    number = chosen.first
    while number < chosen.first + chosen.cases if chosen.cases else time.monotonic() < ends_at:
        count = min(ROUND, chosen.first + chosen.cases - number) if chosen.cases else ROUND
        cases = {n: make_case(chosen.seed, n, chosen.size) for n in range(number, number + count)}
        folder = _folder(chosen.folder)
        await made.round(folder, cases, blocking_cases(), kill=number // ROUND % 2 == 1)
        number += count
        print(report.summary(), flush=True)  # noqa: T201
    return report


def _read(path: str) -> Case:
    return Case(**json.loads(Path(path).read_text()))


def _folder(parent: str | None) -> Path:
    return Path(tempfile.mkdtemp(prefix="hostile-", dir=parent))


def main() -> None:
    """Do the long form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (a round is always finished)")
    parser.add_argument("--cases", type=int, default=0, help="how many cases, in place of a time")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--size", type=int, default=SIZE, help="bytes of the largest inputs")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own, not on SQLite")
    parser.add_argument("--case", nargs="*", help="files of cases, to do these alone")
    parser.add_argument("--folder", help="where the folders of the rounds are made, and stay")
    report = asyncio.run(sweep(parser.parse_args()))
    for failure in report.failures:
        print(f"\nFAILED {failure}")  # noqa: T201
    print(f"\n{report.summary()}")  # noqa: T201
    raise SystemExit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
