"""The ai action: a registered provider, or any server that speaks OpenAI's chat completions. Tools are off.

The operator sets LOOM_AI_BASE_URL, LOOM_AI_API_KEY and LOOM_AI_MODEL. That address is the operator's own choice and
passes the guard; the key never goes to an address that a flow names.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import httpx2
from msgspec.structs import replace

from loom.effects.actions.content import TooManyValues, decode_content_off_loop
from loom.effects.actions.exchange import AnswerRefused
from loom.effects.actions.handlers import call_handler
from loom.effects.actions.http import outcome_of, request, tamed
from loom.effects.actions.outcomes import (
    ActionFailed,
    Services,
    argument_of,
    context_of,
    is_failure,
    object_inputs,
    plain,
    within_limit,
)
from loom.effects.off_loop import OFF_LOOP_BYTES, aside, has_more_values, is_heavier
from loom.flows.calls import ActionCall, ActionOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.effects.actions.ssrf import HttpPolicy
    from loom.effects.execution import StepExecution

_BUILT_IN = "openai"
"""The name of the server that the environment or the flow names."""
_DEFAULT = "default"
"""The name of the provider that answers where none is named."""
_OPTIONS = {"temperature": "temperature", "maxTokens": "max_tokens", "topP": "top_p", "seed": "seed", "stop": "stop"}


async def ai_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Ask the provider. An answer that is a JSON object becomes that object, any other text `{"content": text}`."""
    inputs = object_inputs(call)
    provider = _provider(inputs, services.handlers.ai_providers)

    async def work() -> ActionOutcome:
        if provider is None:
            return await tamed(lambda: _complete(execution, call, services))
        argument = argument_of(inputs) if set(inputs) - {"provider"} == {"input"} else _argument_of_provider(inputs)
        answer = await call_handler(provider, argument, context_of(execution, call))
        return await tamed(lambda: _answered(answer, services.policy))

    return await within_limit(execution, call, work)


def _provider(inputs: dict[str, Any], registered: dict[str, Callable[..., Any]]) -> Callable[..., Any] | None:
    """The provider that is named, else `default`, else the only one; None: a server that speaks chat completions.

    A server that the environment names counts as one of them. Of several none is guessed: a flow's data would go
    to whichever happened to be set up.
    """
    name = inputs.get("provider")
    if name:
        provider = registered.get(name) if isinstance(name, str) else None
        if provider is None and str(name).lower() != _BUILT_IN:
            raise ActionFailed(
                f"No AI provider is registered as {name!r}. Register one with @loom.ai_provider({name!r}).",
                "AiProviderNotFound",
            )
        return provider
    if inputs.get("baseUrl"):
        return None
    if _DEFAULT in registered:
        return registered[_DEFAULT]
    known = {one: repr(one) for one in registered}
    if os.environ.get("LOOM_AI_BASE_URL"):
        known.setdefault(_BUILT_IN, f"{_BUILT_IN!r} (of LOOM_AI_BASE_URL)")
    if len(known) > 1:
        names = ", ".join(known[one] for one in sorted(known))
        raise ActionFailed(
            f"There are several AI providers: {names}. Name one in inputs.provider, or register one as '{_DEFAULT}'.",
            "AiProviderAmbiguous",
        )
    return next(iter(registered.values()), None)


def _argument_of_provider(inputs: dict[str, Any]) -> dict[str, Any]:
    """Make the argument of a provider: the inputs without its own name."""
    return {key: value for key, value in inputs.items() if key != "provider"}


async def _complete(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    inputs = object_inputs(call)
    base, key, services = _endpoint(inputs, services)
    sent = {
        "method": "POST",
        "uri": f"{base}/chat/completions",
        "headers": {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})},
        "body": _question(inputs),
    }
    answer = await request(sent, services, key=context_of(execution, call).idempotency_key)
    outcome = await outcome_of(answer, services.policy, execution.host.now())
    if is_failure(answer.status):
        return outcome
    content = _content(outcome.outputs["body"])
    return ActionOutcome(outputs=await _structured(content, services.policy), code=outcome.code)


def _endpoint(inputs: dict[str, Any], services: Services) -> tuple[str, str, Services]:
    """Find the address to ask, its key, and services whose guard allows it."""
    own = inputs.get("baseUrl")
    if isinstance(own, str) and own:
        return own.rstrip("/"), str(inputs.get("apiKey") or ""), services
    base = os.environ.get("LOOM_AI_BASE_URL", "").rstrip("/")
    if not base:
        raise ActionFailed(
            "No AI provider is set up: set LOOM_AI_BASE_URL (and LOOM_AI_API_KEY, LOOM_AI_MODEL), give inputs.baseUrl, "
            "or register one with @loom.ai_provider(name).",
            "AiProviderNotFound",
        )
    policy = services.policy
    url = httpx2.URL(base)
    port = url.port or (443 if url.scheme == "https" else 80)
    allowed = replace(policy, allow_hosts=policy.allow_hosts | {f"{url.host.lower()}:{port}"})
    key = str(inputs.get("apiKey") or os.environ.get("LOOM_AI_API_KEY", ""))
    return base, key, replace(services, http=allowed)


def _question(inputs: dict[str, Any]) -> dict[str, Any]:
    """The body of the request for a completion."""
    model = inputs.get("model") or os.environ.get("LOOM_AI_MODEL", "")
    if not model:
        raise ActionFailed("The ai action needs inputs.model, or LOOM_AI_MODEL in the environment.", "InvalidInputs")
    asked = {"model": model, "messages": _messages(inputs)}
    asked |= {theirs: inputs[ours] for ours, theirs in _OPTIONS.items() if inputs.get(ours) is not None}
    return asked


def _messages(inputs: dict[str, Any]) -> list[Any]:
    given = inputs.get("messages")
    messages = list(given) if isinstance(given, list) else []
    system, prompt = inputs.get("system"), inputs.get("prompt", inputs.get("input"))
    if system is not None:
        messages.insert(0, {"role": "system", "content": _text(system)})
    if prompt is not None:
        messages.append({"role": "user", "content": _text(prompt)})
    if not messages:
        raise ActionFailed("The ai action needs inputs.prompt or inputs.messages.", "InvalidInputs")
    return messages


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _content(body: Any) -> str:
    """The text of the first choice."""
    try:
        content = body["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise ActionFailed("The AI provider's answer is no chat completion.", "InvalidAnswer") from None
    return content if isinstance(content, str) else ""


async def _answered(answer: Any, policy: HttpPolicy) -> ActionOutcome:
    """Turn a registered provider's answer into an outcome. It hands on what a model says, which is not trusted."""
    if isinstance(answer, str) and len(answer) <= OFF_LOOP_BYTES:
        found = plain(answer)
    else:
        # Objects of the provider's own classes show their size only once they are plain data.
        found = await aside("convert", _measured, answer, policy)
    return ActionOutcome(outputs=await _structured(found, policy) if isinstance(found, str) else found)


def _measured(answer: Any, policy: HttpPolicy) -> Any:
    """The answer as plain data, if it has no more bytes and values than the policy allows."""
    _check_size(answer, policy)
    found = plain(answer)
    _check_size(found, policy)  # a model or a dataclass weighs nothing before
    return found


def _check_size(answer: Any, policy: HttpPolicy) -> None:
    if has_more_values(answer, policy.max_response_values):
        raise AnswerRefused(f"The provider's answer has more than {policy.max_response_values} values.")
    if is_heavier((answer,), policy.max_response_bytes):
        raise AnswerRefused(f"The provider's answer has more than {policy.max_response_bytes} bytes.")


async def _structured(text: str, policy: HttpPolicy) -> dict[str, Any]:
    """The object that an answer is, also within a fence as models like to set one, or the text as `content`."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```"):
        bare = bare[3:-3].removeprefix("json").strip()
    if bare.startswith("{"):
        try:
            said = bare.encode("utf-8", "replace")
            found = await decode_content_off_loop(said, "application/json", policy.max_response_values)
        except TooManyValues as error:
            raise AnswerRefused(f"The model's answer: {error}") from error
        if isinstance(found, dict):
            return found
    return {"content": text}
