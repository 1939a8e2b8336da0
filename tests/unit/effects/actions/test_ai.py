"""The ai action: registered providers, and an OpenAI-compatible server that the operator has set up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from action_host import ActionHost, call_of
from action_server import ActionServer, Asked, Reply, serving

from loom.effects.actions.outcomes import Services
from loom.effects.actions.ssrf import HttpPolicy


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ActionServer]:
    with serving() as running:
        running.replies["/v1/chat/completions"] = saying("hello")
        monkeypatch.setenv("LOOM_AI_BASE_URL", f"{running.url}/v1/")
        monkeypatch.setenv("LOOM_AI_API_KEY", "operators-key")
        monkeypatch.setenv("LOOM_AI_MODEL", "small")
        yield running


def saying(content: Any) -> Reply:
    return Reply(200, json.dumps({"choices": [{"message": {"content": content}}]}).encode())


@pytest.fixture
def host() -> ActionHost:
    """The guard is shut: the operator's own address passes it all the same."""
    host = ActionHost()
    host.services = Services(host.handlers, HttpPolicy())
    return host


async def test_prompts_go_to_the_operators_server(host: ActionHost, server: ActionServer) -> None:
    inputs = {"prompt": "Hi", "system": "Be brief.", "temperature": 0, "maxTokens": 9, "tools": [{"evil": 1}]}
    outcome = await host.run(call_of("ai", inputs))
    assert (outcome.status, outcome.outputs) == ("Succeeded", {"content": "hello"})
    assert server.asked[0].headers["Authorization"] == "Bearer operators-key"
    assert json.loads(server.asked[0].body) == {
        "model": "small",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "temperature": 0,
        "max_tokens": 9,
    }


@pytest.mark.parametrize(
    ("content", "outputs"),
    [
        ('{"action": "search", "actionInput": 1}', {"action": "search", "actionInput": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("[1, 2]", {"content": "[1, 2]"}),
        ("{broken", {"content": "{broken"}),
        (None, {"content": ""}),
    ],
)
async def test_an_object_in_the_answer_is_the_output(
    host: ActionHost, server: ActionServer, content: Any, outputs: Any
) -> None:
    server.replies["/v1/chat/completions"] = saying(content)
    assert (await host.run(call_of("ai", {"messages": [{"role": "user", "content": "x"}]}))).outputs == outputs


async def test_failures_of_the_server(host: ActionHost, server: ActionServer) -> None:
    server.replies["/v1/chat/completions"] = Reply(429, b"{}", headers={"Retry-After": "3"})
    outcome = await host.run(call_of("ai", {"prompt": "x"}))
    assert (outcome.status, outcome.code, outcome.retry_after_s) == ("Failed", "TooManyRequests", 3.0)
    server.replies["/v1/chat/completions"] = Reply(200, b"{}")
    assert (await host.run(call_of("ai", {"prompt": "x"}))).code == "InvalidAnswer"


async def test_a_flows_own_address_meets_the_guard_and_gets_no_key(host: ActionHost, server: ActionServer) -> None:
    got: list[Asked] = []
    with serving() as other:
        other.replies["/chat/completions"] = lambda asked: (got.append(asked), saying("x"))[1]
        call = call_of("ai", {"prompt": "x", "baseUrl": other.url})
        assert (await host.run(call)).code == "HostRefused"
        host.services = Services(host.handlers, HttpPolicy.allowing("127.0.0.1"))
        assert (await host.run(call)).status == "Succeeded"
        assert "Authorization" not in got[0].headers


@pytest.mark.parametrize(
    ("inputs", "code", "says"),
    [
        ({"prompt": "x"}, "AiProviderNotFound", "LOOM_AI_BASE_URL"),
        ({"provider": "none", "prompt": "x"}, "AiProviderNotFound", "@loom.ai_provider('none')"),
        ({"baseUrl": "http://127.0.0.1:1", "prompt": "x"}, "InvalidInputs", "LOOM_AI_MODEL"),
        ({"baseUrl": "http://127.0.0.1:1", "model": "m"}, "InvalidInputs", "inputs.prompt"),
    ],
)
async def test_what_is_not_set_up_is_said(
    host: ActionHost, inputs: Any, code: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOM_AI_BASE_URL", "LOOM_AI_MODEL", "LOOM_AI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    outcome = await host.run(call_of("ai", inputs))
    assert (outcome.status, outcome.code) == ("Failed", code)
    assert says in outcome.message


async def test_registered_providers_answer(host: ActionHost) -> None:
    @host.handlers.ai_provider("mine")
    async def mine(inputs: dict[str, Any]) -> str:
        return json.dumps({"echo": inputs})

    host.handlers.ai_provider("plain")(lambda given: {"given": given})
    outcome = await host.run(call_of("ai", {"provider": "mine", "prompt": "p", "temperature": 1}))
    assert outcome.outputs == {"echo": {"prompt": "p", "temperature": 1}}
    assert (await host.run(call_of("ai", {"provider": "plain", "input": 4}))).outputs == {"given": 4}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOM_AI_BASE_URL", "LOOM_AI_MODEL", "LOOM_AI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def register(host: ActionHost, *names: str) -> None:
    for name in names:
        host.handlers.ai_provider(name)(lambda given, name=name: {"by": name, "given": given})


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("unnamed", [{}, {"provider": None}, {"provider": ""}], ids=["missing", "null", "empty"])
async def test_without_a_name_the_only_provider_answers(host: ActionHost, unnamed: Any) -> None:
    register(host, "mine")
    outcome = await host.run(call_of("ai", {"prompt": "p", **unnamed}))
    assert outcome.outputs == {"by": "mine", "given": {"prompt": "p"}}


@pytest.mark.usefixtures("bare")
async def test_without_a_name_the_one_called_default_answers(host: ActionHost) -> None:
    register(host, "mine", "default", "other")
    outcome = await host.run(call_of("ai", {"prompt": "p"}))
    assert outcome.outputs == {"by": "default", "given": {"prompt": "p"}}


@pytest.mark.usefixtures("server")
async def test_one_called_default_goes_before_the_one_of_the_environment(host: ActionHost) -> None:
    register(host, "default")
    assert (await host.run(call_of("ai", {"prompt": "p"}))).outputs["by"] == "default"
    assert (await host.run(call_of("ai", {"prompt": "p", "provider": "openai"}))).outputs == {"content": "hello"}


@pytest.mark.usefixtures("bare")
async def test_of_several_without_a_default_none_is_guessed(host: ActionHost) -> None:
    register(host, "second", "first")
    outcome = await host.run(call_of("ai", {"prompt": "p"}))
    assert (outcome.status, outcome.code) == ("Failed", "AiProviderAmbiguous")
    assert "'first', 'second'" in outcome.message
    assert "inputs.provider" in outcome.message


@pytest.mark.usefixtures("server")
async def test_the_one_of_the_environment_counts_as_registered(host: ActionHost) -> None:
    register(host, "mine")
    outcome = await host.run(call_of("ai", {"prompt": "p"}))
    assert (outcome.status, outcome.code) == ("Failed", "AiProviderAmbiguous")
    assert "'mine', 'openai' (of LOOM_AI_BASE_URL)" in outcome.message
    assert (await host.run(call_of("ai", {"prompt": "p", "provider": "openai"}))).outputs == {"content": "hello"}


async def test_an_address_of_the_flow_is_a_choice(host: ActionHost, server: ActionServer) -> None:
    register(host, "mine", "other")
    outcome = await host.run(call_of("ai", {"prompt": "p", "baseUrl": f"{server.url}/v1"}))
    assert outcome.code == "HostRefused", "it is asked there, and the guard decides"


async def test_a_model_that_says_too_much_fails_its_action(host: ActionHost, server: ActionServer) -> None:
    host.services = Services(host.handlers, HttpPolicy(max_response_values=10, max_response_bytes=70_000))
    server.replies["/v1/chat/completions"] = saying('{"a": [1,2,3,4,5,6,7,8,9,10,11]}')
    outcome = await host.run(call_of("ai", {"prompt": "Hi"}))
    assert (outcome.status, outcome.code) == ("Failed", "AnswerRefused")
    assert "10 values" in outcome.message
    answers: dict[str, Any] = {
        "structure": '{"a": [1,2,3,4,5,6,7,8,9,10,11]}',
        "text": "x" * 70_001,
        "object": {"a": "x" * 70_001},
    }
    host.handlers.ai_provider("own")(lambda given: answers[given["prompt"]])
    for what in answers:
        outcome = await host.run(call_of("ai", {"prompt": what, "provider": "own"}))
        assert (outcome.status, outcome.code) == ("Failed", "AnswerRefused"), what
