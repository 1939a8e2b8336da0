"""The Flask and Django set-ups of docs/sync.md run, with plain modules in place of the frameworks."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sync.md").read_text("utf-8")
PATIENCE_S = 60.0


class Approval(HumanResponseEvent):
    approved: bool


class Order(Workflow):
    @step
    async def review(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Approval, timeout=None)
        return StopEvent(result=f"{ev.item}: {answer.approved}")


def block(having: str) -> str:
    """The code of the page that has a text."""
    found = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if having in code]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Put a module with these names where `import` finds it."""

    def put(name: str, **names: Any) -> ModuleType:
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    put("shop")
    put("shop.workflows", Order=Order, Approval=Approval)
    return put


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[loom.SyncRuntime]]:
    """The runtimes that the page's code has opened. They are closed after the test."""
    found: list[loom.SyncRuntime] = []
    open_one = loom.SyncRuntime.open

    def kept(runtime: loom.SyncRuntime) -> loom.SyncRuntime:
        found.append(runtime)
        return open_one(runtime)

    monkeypatch.setattr(loom.SyncRuntime, "open", kept)
    yield found
    for runtime in found:
        runtime.close()


class Response:
    def __init__(self, data: Any, status: int = 200) -> None:
        self.data, self.status = data, status


def _django(modules: Callable[..., ModuleType], url: str) -> ModuleType:
    """The page's `shop/runs.py` and `shop/views.py`. Returns the views."""
    numbers = iter(range(1, 100))
    create = lambda item: SimpleNamespace(item=item, pk=next(numbers))  # noqa: E731
    transaction = SimpleNamespace(atomic=nullcontext, on_commit=lambda call: call())
    modules("django")
    modules("django.conf", settings=SimpleNamespace(LOOM_URL=url, LOOM_WORKS=True))
    modules("django.db", transaction=transaction)
    modules("django.http", HttpRequest=SimpleNamespace, JsonResponse=Response)
    modules("shop.models", Purchase=SimpleNamespace(objects=SimpleNamespace(create=create)))
    runs, views = block("# shop/runs.py").split("# shop/views.py\n")
    exec(runs, vars(modules("shop.runs")))
    module = modules("shop.views")
    exec(views, vars(module))
    return module


def test_the_django_views_share_one_runtime(
    modules: Callable[..., ModuleType], opened: list[loom.SyncRuntime], tmp_path: Path
) -> None:
    views = _django(modules, f"sqlite:///{tmp_path / 'orders.db'}")
    together, answers = threading.Barrier(4), []

    def ask(item: str) -> None:
        together.wait(PATIENCE_S)
        answers.append(views.start(SimpleNamespace(body=json.dumps({"item": item}))))

    threads = [threading.Thread(target=ask, args=(f"item {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted((answer.data["run_id"], answer.status) for answer in answers) == [
        (f"order-{n}", 202) for n in range(1, 5)
    ]
    assert len(opened) == 1

    yes = SimpleNamespace(body='{"approved": true}')
    assert views.approve(yes, "order-1").status == 202
    assert opened[0].handler("order-1").result(PATIENCE_S).endswith(": True")
    assert views.approve(yes, "order-9").status == 404


class Flask:
    """What the page's example uses of Flask."""

    def __init__(self, _name: str) -> None:
        self.routes: dict[tuple[str, str], Callable[..., Any]] = {}
        self.problems: dict[type[Exception], Callable[..., Any]] = {}

    def post(self, path: str) -> Callable[..., Any]:
        return lambda view: self.routes.setdefault(("POST", path), view)

    def get(self, path: str) -> Callable[..., Any]:
        return lambda view: self.routes.setdefault(("GET", path), view)

    def errorhandler(self, kind: type[Exception]) -> Callable[..., Any]:
        return lambda view: self.problems.setdefault(kind, view)


def test_the_flask_app(
    modules: Callable[..., ModuleType],
    opened: list[loom.SyncRuntime],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    body: dict[str, Any] = {}
    modules("flask", Flask=Flask, jsonify=lambda **data: data, request=SimpleNamespace(get_json=lambda: body))
    module = modules("shop.app")
    exec(block("def create_app()"), vars(module))
    app = module.create_app()
    body["item"] = "linen"
    started, status = app.routes["POST", "/orders"]()
    assert status == 202
    shown = app.routes["GET", "/orders/<run_id>"](started["run_id"])
    assert shown["status"] == "running"
    body.clear()
    body["approved"] = True
    assert app.routes["POST", "/orders/<run_id>/approval"](started["run_id"]) == ("", 204)
    assert opened[0].handler(started["run_id"]).result(PATIENCE_S) == "linen: True"
    with pytest.raises(loom.RunNotFound) as caught:
        app.routes["GET", "/orders/<run_id>"]("nobody")
    assert app.problems[loom.RunNotFound](caught.value)[1] == 404


def test_the_worker_works_for_the_name_that_the_views_start() -> None:
    (target,) = re.findall(r"loom worker (\S+)", PAGE)
    started = set(re.findall(r'\.start\("(\w+)"', block("# shop/views.py") + block("def create_app()")))
    assert {target.partition("=")[0]} == started
