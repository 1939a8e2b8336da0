"""Projects of Logic Apps: what is read of their folder, what their runs get, and what is wrong with them."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.effects.actions.handlers import ActionHandlers
from loom.flows.document import document_text, read_document
from loom.flows.triggers import FiringRefused, fired
from loom.runtime.durable.registration import registration_of
from loom.runtime.project import ProjectError
from loom.runtime.project_checks import project_problems
from loom.runtime.verification import replayed_run
from loom.store.codec import decode_start, encode_start
from loom.testing import isolated_handlers

sys.path.insert(0, str(Path(__file__).parents[2]))

from project_shapes import MANAGED, Shape, compose, local, shapes, text, workflow


def project(root: Path, **files: Any) -> Path:
    """Write a project with one workflow that answers what `Main` says; other files by their names."""
    named = {"parameters": "parameters.json", "connections": "connections.json", "local": "local.settings.json"}
    wanted = {"host.json": {"version": "2.0"}}
    wanted |= {named.get(key, key): value for key, value in files.items() if key != "main"}
    wanted["Main/workflow.json"] = files.get("main", workflow({}, "x"))
    return Shape("app", wanted, "Main", {}, None, {}).write(root)


def reading(value: Any) -> dict[str, Any]:
    return workflow({"Read": compose(value)}, "@outputs('Read')")


def problems(root: Path, **files: Any) -> list[str]:
    with pytest.raises(ProjectError) as refused:
        loom.load_project(project(root, **files))
    return str(refused.value).replace(str(root / "app") + os.sep, "").splitlines()


async def answer(folder: Path, body: Any = None) -> Any:
    result = await loom.load_project(folder)["Main"].run({} if body is None else body)
    assert result.status == "Succeeded", result.error
    return result.response["body"]


# -- values -----------------------------------------------------------------------------------------------------------


async def test_all_shapes_load_and_answer_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with connections and children need a runtime: the integration tests serve them."""
    ran = 0
    for shape in shapes():
        for name, value in shape.settings.items():
            monkeypatch.setenv(name, value)
        found = loom.load_project(shape.write(tmp_path))
        assert shape.workflow in found
        assert [str(each.problem) for each in found.warnings] == []
        assert all(flow.warnings == [] for flow in found.values())
        if "connections.json" not in shape.files and len(found) == 1:
            result = await found[shape.workflow].run(shape.body)
            assert result.response["body"] == shape.answer, shape.name
            ran += 1
    assert (len(shapes()), ran) == (20, 15)


async def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path, main=reading("@appsetting('PLACE')"), local=local(PLACE="file"))
    assert await answer(folder) == "file"
    monkeypatch.setenv("PLACE", "environment")
    assert await answer(folder) == "environment"


async def test_settings_are_read_when_a_run_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = loom.load_project(project(tmp_path, main=reading("@appsetting('PLACE')")))["Main"]
    for value in ("one", "two"):
        monkeypatch.setenv("PLACE", value)
        assert (await flow.run({})).response["body"] == value


async def test_a_caller_may_give_another_value_than_the_project(tmp_path: Path) -> None:
    folder = project(tmp_path, main=reading("@parameters('word')"), parameters={"word": text("hello")})
    flow = loom.load_project(folder)["Main"]
    assert (await flow.run({}, parameters={"WORD": "bye"})).response["body"] == "bye"
    assert (await loom.load_project(folder, parameters={"word": "hi"})["Main"].run({})).response["body"] == "hi"


async def test_a_missing_setting_is_null_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = project(tmp_path, main=reading("@coalesce(appsetting('GONE'), 'nothing')"))
    with caplog.at_level(logging.WARNING, "loom.project"):
        assert await answer(folder) == "nothing"
    assert "A run starts without the app settings GONE, which are null in it." in caplog.text


async def test_a_computed_name_must_be_named_elsewhere(tmp_path: Path) -> None:
    flow = loom.load_project(
        project(
            tmp_path,
            main=workflow(
                {"Known": compose("@appsetting('one')"), "Read": compose("@appsetting(triggerBody()['name'])")},
                "@outputs('Read')",
            ),
            local=local(ONE="1", TWO="2"),
        )
    )["Main"]
    assert (await flow.run({"name": "One"})).response["body"] == "1"
    failed = await flow.run({"name": "TWO"})
    assert failed.status == "Failed"
    error = failed.actions["Read"].error
    assert error["code"] == "AppSettingNotNamed"
    assert "an app setting is asked for by a name that the definition does not have" in error["message"]
    assert "TWO" not in error["message"]


async def test_only_the_settings_that_files_name_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_ENCRYPTION_KEYS", "k:secret")
    found = loom.load_project(project(tmp_path, main=reading("@appsetting('A')"), local=local(A="1")))
    assert found.values_of_runs.settings.find("LOOM_ENCRYPTION_KEYS") is None
    assert found.values_of_runs.settings.find("a") == "1"


def test_a_value_that_a_definition_does_not_name_makes_no_new_version(tmp_path: Path) -> None:
    main = reading("@parameters('a')")
    first = loom.load_project(project(tmp_path, main=main, parameters={"a": text("1")}))["Main"]
    second = loom.load_project(project(tmp_path, main=main, parameters={"a": text("2"), "b": text("3")}))["Main"]
    assert first.digest == second.digest
    assert "beside" in first.document
    assert '"1"' not in first.document


def test_a_flow_beside_no_project_keeps_its_digest_and_shows_its_settings() -> None:
    document = read_document({"actions": {"Read": {"type": "compose", "inputs": "@appsetting('X')"}}}, name="x")
    assert "beside" not in json.loads(document_text(document))
    assert "foreach_width" not in document_text(document)
    result = loom.load(dict(document.definition)).run_sync()
    assert (result.actions["Read"].outputs, result.actions["Read"].inputs) == (None, None)


def test_parameters_made_of_settings_are_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNT", "3")
    main = workflow({"Twice": compose("@mul(parameters('count'), 2)"), "Say": compose("@parameters('open')")}, "x")
    main["definition"]["parameters"] = {"count": {"type": "Int"}}
    found = loom.load_project(
        project(tmp_path, main=main, parameters={"count": text("@appsetting('COUNT')", "Int"), "open": text("seen")})
    )
    result = found["Main"].run_sync({})
    assert result.actions["Twice"].outputs == "*** secure ***"
    assert result.actions["Say"].outputs == "seen"
    assert found["Main"].program.parameters["count"].type == "secureint"


def bytes_of(folder: Path) -> bytes:
    return b"".join(place.read_bytes() for place in folder.glob("runs.db*"))


# -- stores -----------------------------------------------------------------------------------------------------------


async def test_a_replay_and_a_fork_need_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "north")
    main = workflow({"Read": compose("@concat(appsetting('PLACE'), parameters('p'))")}, "@outputs('Read')")
    folder = project(tmp_path, main=main, parameters={"p": text("-@{appsetting('PLACE')}")})
    url = f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url) as runtime:
        for name, flow in loom.load_project(folder).items():
            runtime.register(flow, name=name)
        await runtime.start("Main", {"pause": True}, run_id="r1")
        await until_asleep(runtime, "r1")
    monkeypatch.delenv("PLACE")
    async with loom.connect(url) as runtime:
        for name, flow in loom.load_project(folder).items():
            runtime.register(flow, name=name)
        assert (await replayed_run(runtime, "r1")).replay == "same"
        fork = (await runtime.fork("r1", tick=0)).run_id
        await runtime.skip("r1")
        assert (await (await runtime.handler("r1"))).response["body"] == "north-north"
        await until_asleep(runtime, fork)
        await runtime.skip(fork)
        assert (await (await runtime.handler(fork))).response["body"] == "north-north"


async def until_asleep(runtime: Any, run_id: str) -> None:
    """Return when the action that pauses the run has begun, which is stored by then."""
    handler = await runtime.handler(run_id)
    async for event in handler.stream_events(expose_internal=True):
        if getattr(event, "name", "") == "Pause":
            return


async def test_a_start_by_a_client_gets_its_values_from_the_worker(tmp_path: Path) -> None:
    folder = project(tmp_path, main=reading("@parameters('p')"), parameters={"p": text("from the worker")})
    url = f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url) as client:
        await client.start("Main", {}, run_id="r1")
    async with loom.connect(url) as runtime:
        runtime.register(loom.load_project(folder)["Main"], name="Main")
        assert (await (await runtime.handler("r1"))).response["body"] == "from the worker"


async def test_a_repeated_start_finds_its_run_though_settings_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path, main=reading("@appsetting('PLACE')"))
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
        runtime.register(loom.load_project(folder)["Main"], name="Main")
        for value in ("one", "two"):
            monkeypatch.setenv("PLACE", value)
            handler = await runtime.start("Main", {"a": 1}, run_id="r1")
            assert (await handler).response["body"] == "one"


async def test_a_definition_that_is_put_reads_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "north")
    folder = project(tmp_path, main=reading("@appsetting('PLACE')"))
    async with loom.connect("memory://") as runtime:
        runtime.register(loom.load_project(folder)["Main"], name="Main")
        put = loom.load(reading("@coalesce(appsetting('PLACE'), 'nothing')"), name="Main")
        await runtime.definitions.put("Main", put)
        assert (await (await runtime.start("Main", {}))).response["body"] == "nothing"
        assert (await (await runtime.start("Main", {}, version=1))).response["body"] == "north"


async def test_handlers_get_connections_that_the_store_never_has(tmp_path: Path) -> None:
    send = {
        "type": "ApiConnection",
        "inputs": {"host": {"connection": {"referenceName": "office365"}}, "method": "post", "path": "/"},
    }
    keys = local(SUBSCRIPTION="s", MAIL_URL="https://mail.example.com", MAIL_KEY="k-mail-secret")
    folder = project(tmp_path, main=workflow({"Send": send}, "@body('Send')"), connections=MANAGED, local=keys)
    with isolated_handlers():
        seen: list[Any] = []

        @loom.action("ApiConnection")
        def connector(inputs: Any, context: loom.ActionContext) -> Any:
            seen.append(context.connection)
            assert "k-mail-secret" not in repr(context)
            return {"body": "sent", "context": context}

        async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
            runtime.register(loom.load_project(folder)["Main"], name="Main")
            assert (await (await runtime.start("Main", {}))).response["body"] == "sent"
    assert seen[0]["authentication"]["parameter"] == "k-mail-secret"
    assert seen[0]["connection"]["id"] == "/subscriptions/s/connections/office365"
    stored = bytes_of(tmp_path)
    assert b"k-mail-secret" not in stored


async def test_errors_of_handlers_do_not_repeat_secrets_of_connections(tmp_path: Path) -> None:
    inputs = {"host": {"connection": {"referenceName": "office365"}}, "method": "post", "path": "/"}
    send = {"type": "ApiConnection", "inputs": inputs, "retryPolicy": {"type": "none"}}
    keys = local(SUBSCRIPTION="s", MAIL_URL="https://mail.example.com", MAIL_KEY="k-mail-secret")
    folder = project(tmp_path, main=workflow({"Send": send}, "x"), connections=MANAGED, local=keys)
    with isolated_handlers():

        @loom.action("ApiConnection")
        def connector(inputs: Any, context: loom.ActionContext) -> Any:
            assert context.connection is not None
            raise ConnectionError(f"no line to https://x?sig={context.connection['authentication']['parameter']}")

        async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
            runtime.register(loom.load_project(folder)["Main"], name="Main")
            result = await (await runtime.start("Main", {}))
    assert result.actions["Send"].error["message"] == "no line to https://x?sig=*** secure ***"
    assert b"k-mail-secret" not in bytes_of(tmp_path)


async def test_a_run_does_not_begin_while_a_parameter_cannot_be_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNT", "3")
    main = workflow({"Read": compose("@parameters('count')")}, "@{length(string(outputs('Read')))}")
    folder = project(tmp_path, main=main, parameters={"count": text("@int(appsetting('COUNT'))", "Int")})
    flow = loom.load_project(folder)["Main"]
    monkeypatch.setenv("COUNT", "many")
    with pytest.raises(loom.WorkflowRuntimeError) as refused:
        await flow.run({})
    why = "the parameter 'count' of its project cannot be evaluated with the settings as they are"
    assert str(refused.value) == f"The flow 'Main' cannot begin: {why}"


async def test_conditions_and_splits_of_a_trigger_read_what_the_project_gives(tmp_path: Path) -> None:
    trigger = {
        "conditions": [{"expression": "@equals(triggerBody()['key'], appsetting('KEY'))"}],
        "splitOn": "@take(triggerBody()['items'], parameters('most'))",
    }
    folder = project(
        tmp_path,
        main=workflow({}, "x", **trigger),
        parameters={"most": {"type": "Int", "value": 2}},
        local=local(KEY="secret"),
    )
    flow = loom.load_project(folder)["Main"]
    [found] = flow.program.triggers
    body = {"key": "secret", "items": [1, 2, 3]}
    assert fired(flow.program, found, {"body": body}, 0.0, given=flow.given()) == [1, 2]
    assert fired(flow.program, found, {"body": {**body, "key": "other"}}, 0.0, given=flow.given()) is None
    with pytest.raises(FiringRefused) as refused:
        fired(flow.program, found, {"body": {"key": "secret"}}, 0.0, given=flow.given())
    assert "secret" not in str(refused.value)


def test_a_start_that_begins_elsewhere_takes_the_values_along(tmp_path: Path) -> None:
    """As on Temporal, where a run begins in a sandbox."""
    folder = project(tmp_path, main=reading("@appsetting('PLACE')"), local=local(PLACE="north"))
    code = registration_of("Main", loom.load_project(folder)["Main"])
    start = encode_start(code.start_spec({"a": 1}))
    assert b"north" not in start
    spec = decode_start("r1", code.whole_start(start))
    assert spec.event is not None
    assert spec.event.body.settings == {"PLACE": "north"}
    assert spec.event.body.body == {"a": 1}
    plain = registration_of("Main", loom.load(reading("x")))
    assert plain.whole_start(start) == start


async def test_a_recurrence_takes_parameters_and_settings_of_the_project(tmp_path: Path) -> None:
    main = workflow({}, "x")
    main["definition"]["triggers"] = {
        "Often": {
            "type": "Recurrence",
            "recurrence": {"frequency": "@parameters('unit')", "interval": "@int(appsetting('EVERY'))"},
        }
    }
    folder = project(tmp_path, main=main, parameters={"unit": text("Hour")}, local=local(EVERY="6"))
    async with loom.connect("memory://") as runtime:
        runtime.register(loom.load_project(folder)["Main"], name="Main")
        await runtime.ready()
        [schedule] = await runtime.schedules()
        assert schedule.recurrence["frequency"] == "Hour"
        assert schedule.recurrence["interval"] == 6


# -- problems ---------------------------------------------------------------------------------------------------------


def test_unreadable_json_is_told_with_its_line(tmp_path: Path) -> None:
    told = problems(tmp_path, connections='{\n "a": 1,,\n}', main='{"definition": [}')
    assert told[0].startswith("connections.json: (document): this is not JSON: ")
    assert told[0].endswith("at line 2, column 8")
    assert told[1].startswith("Main/workflow.json: (document): this is not JSON: ")


async def test_files_may_have_comments_and_trailing_commas(tmp_path: Path) -> None:
    """The tools of Azure take them, and people write them."""
    main = "// what it does\n" + json.dumps(reading("http://@{parameters('host')}"), indent=1)
    folder = project(
        tmp_path,
        main=main,
        parameters='{"host": {"type": "String", /* from the settings */ "value": "@appsetting(\'HOST2\')",},}',
        local='{"IsEncrypted": false, "Values": {"HOST2": "x//y"} // of mine\n}',
        **{"host.json": '{\n  // the host\n  "version": "2.0",\n}'},
    )
    assert await answer(folder) == "http://x//y"


def test_parameters_of_the_wrong_type_are_refused(tmp_path: Path) -> None:
    main = reading("@parameters('level')")
    main["definition"]["parameters"] = {"level": {"type": "String", "allowedValues": ["low", "high"]}}
    told = problems(
        tmp_path,
        main=main,
        parameters={
            "count": {"type": "Int", "value": "many"},
            "odd": {"type": "Integr", "value": 1},
            "bare": 3,
            "level": {"type": "String", "value": "middle"},
            "asks": {"type": "String", "value": "@variables('x')"},
            "broken": {"type": "String", "value": "@concat('a'"},
        },
    )
    assert told[0].startswith("parameters.json: odd.type: 'Integr' is no type of a parameter")
    assert "parameters.json: bare: a parameter is an object with a 'value'" in told
    assert "parameters.json: count.value: the value is String, and the type is Int" in told
    assert (
        "parameters.json: level.value: The parameter 'level' must be one of ['low', 'high'] in the workflow 'Main'"
        in told
    )
    assert any(each.startswith("parameters.json: asks.value: variables() asks for a run") for each in told)
    assert any(each.startswith("parameters.json: broken.value: ") for each in told)
    assert len(told) == 6


def test_links_that_leave_the_project_are_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "workflow.json").write_text(json.dumps(workflow({}, "x")))
    (outside / "secrets.json").write_text("{}")
    folder = project(tmp_path)
    (folder / "Linked").symlink_to(outside, target_is_directory=True)
    (folder / "parameters.json").symlink_to(outside / "secrets.json")
    with pytest.raises(ProjectError) as refused:
        loom.load_project(folder)
    assert [str(each.file.relative_to(folder)) for each in refused.value.found] == [
        "parameters.json",
        "Linked/workflow.json",
    ]
    assert all("a link that leaves the project" in each.problem.message for each in refused.value.found)


@pytest.mark.parametrize("meant", ["app", "Main"])
def test_a_folder_without_workflows_says_what_may_be_meant(tmp_path: Path, meant: str) -> None:
    folder = project(tmp_path)
    with pytest.raises(ProjectError, match=r"there is no folder with a workflow.json in it .*did you mean"):
        loom.load_project(tmp_path if meant == "app" else folder / "Main")
    with pytest.raises(ProjectError, match="there is no such folder"):
        loom.load_project(tmp_path / "nowhere")


def test_what_is_no_setting_is_told(tmp_path: Path) -> None:
    found = loom.load_project(project(tmp_path, local={"IsEncrypted": True, "Values": {"A": "x"}}))
    assert [each.problem.path for each in found.warnings] == ["IsEncrypted"]
    vault = "@Microsoft.KeyVault(SecretUri=https://v.example.com/s)"
    found = loom.load_project(project(tmp_path, local=local(A=vault)))
    assert [each.problem.path for each in found.warnings] == ["Values.A"]
    assert problems(tmp_path, local={"Values": {"A": {"b": 1}}}) == [
        "local.settings.json: Values.A: a setting must be a text, and it is Object"
    ]


# -- checks -----------------------------------------------------------------------------------------------------------


def checked(folder: Path, handlers: ActionHandlers | None = None) -> list[tuple[str, str, str, str]]:
    found = project_problems(loom.load_project(folder), handlers or ActionHandlers())
    return [
        (str(each.file.relative_to(folder)), each.problem.severity, each.problem.path, each.problem.message)
        for each in found
    ]


def test_missing_settings_are_errors_with_their_paths(tmp_path: Path) -> None:
    main = workflow({"A": compose("@appsetting('ONE')"), "B": compose("@appsetting(triggerBody())")}, "x")
    connections = {"serviceProviderConnections": {"bus": {"parameterValues": {"key": "@appsetting('THREE')"}}}}
    parameters = {"p": text("x@{appsetting('TWO')}")}
    found = checked(project(tmp_path, main=main, parameters=parameters, connections=connections))
    assert found[:4] == [
        ("parameters.json", "error", "p.value", "there is no setting 'TWO'"),
        (
            "connections.json",
            "error",
            "serviceProviderConnections.bus.parameterValues.key",
            "there is no setting 'THREE'",
        ),
        ("Main/workflow.json", "error", "definition.actions.A.inputs", "there is no setting 'ONE'"),
        (
            "Main/workflow.json",
            "warning",
            "definition.actions.B.inputs",
            "the name of a setting is known only in the run: such an action fails",
        ),
    ]


def test_connections_without_a_handler_or_an_entry(tmp_path: Path) -> None:
    def send(name: str) -> dict[str, Any]:
        inputs = {"host": {"connection": {"referenceName": name}}, "method": "post", "path": "/"}
        return {"type": "ApiConnection", "inputs": inputs}

    main = workflow({"A": send("office365"), "B": send("office356")}, "x")
    keys = local(SUBSCRIPTION="s", MAIL_URL="https://mail.example.com", MAIL_KEY="k")
    folder = project(tmp_path, main=main, connections=MANAGED, local=keys)
    unknown = (
        "Main/workflow.json",
        "error",
        "definition.actions.B",
        "there is no connection 'office356' in connections.json",
    )
    assert checked(folder) == [
        (
            "connections.json",
            "warning",
            "managedApiConnections.office365",
            "nothing here does actions of type ApiConnection over this connection: 1 name it",
        ),
        unknown,
    ]
    handlers = ActionHandlers(actions={})
    handlers.action("ApiConnection")(lambda inputs: inputs)
    assert handlers.serves_connection("office365", "ApiConnection")
    assert checked(folder, handlers) == [unknown]
    (folder / "connections.json").write_text("{}")
    assert [each[1] for each in checked(folder, handlers)] == ["error", "error"]
    (folder / "connections.json").unlink()
    assert [each[1] for each in checked(folder, handlers)] == ["warning", "warning"]


def test_what_has_no_equal_is_named(tmp_path: Path) -> None:
    identity = {"authentication": {"type": "ManagedServiceIdentity"}}
    main = workflow(
        {
            "Ask": {
                "type": "Http",
                "inputs": {"method": "GET", "uri": "https://x.example.com", **identity},
            },
            "Map": {"type": "Xslt", "inputs": {"content": "x"}},
            "Call": {"type": "Workflow", "inputs": {"host": {"workflow": {"id": "Maim"}}}},
        },
        "x",
    )
    polls = {"type": "ServiceProvider", "inputs": {}, "runtimeConfiguration": {"concurrency": {"runs": 1}}}
    main["definition"]["triggers"] = {"Comes": polls}
    made = project(tmp_path, main=main)
    [told] = [each for each in loom.load_project(made).warnings if "not honored" in each.problem.message]
    assert told.problem.path == "definition.triggers.Comes.runtimeConfiguration.concurrency"
    found = checked(made)
    assert [each[2] for each in found] == [
        "definition.actions.Ask.inputs.authentication.type",
        "definition.triggers.Comes",
        "definition.actions.Map",
        "definition.actions.Call.inputs",
    ]
    assert found[-1][3] == "the project has no workflow 'Maim'"
