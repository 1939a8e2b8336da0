"""Blocks: which actions run after which, in both dialects."""

from __future__ import annotations

from loom.flows.compiler import load_program
from loom.flows.program import FAILED, SKIPPED, SUCCEEDED, TIMED_OUT

COMPOSE = {"type": "Compose", "inputs": 1}
REQUEST = {"triggers": {"manual": {"type": "Request"}}}


def order(program, block=0):
    """For each action of a block, what it runs after."""
    nodes = program.nodes
    return {
        nodes[index].name: {nodes[after].name: bits for after, bits in nodes[index].after}
        for index in program.blocks[block].nodes
    }


def names(program, indexes):
    return [program.nodes[index].name for index in indexes]


def test_without_run_after_logic_apps_starts_all_at_once():
    assert order(load_program({**REQUEST, "actions": {"a": COMPOSE, "b": COMPOSE}})) == {"a": {}, "b": {}}


def test_without_run_after_loom_goes_in_order():
    for triggers in ({}, {"triggers": {"m": {"type": "manual"}, "s": {"type": "Schedule"}, "e": {"type": "event"}}}):
        program = load_program({**triggers, "actions": {"z": COMPOSE, "a": COMPOSE, "m": COMPOSE}})
        assert order(program) == {"z": {}, "a": {"z": SUCCEEDED}, "m": {"a": SUCCEEDED}}


def test_with_some_run_after_loom_is_a_graph():
    program = load_program({"actions": {"a": {**COMPOSE, "runAfter": {}}, "b": COMPOSE}})
    assert order(program) == {"a": {}, "b": {}}


def test_in_parallel_all_start_at_once():
    program = load_program({"actions": {"p": {"type": "parallel", "actions": {"a": COMPOSE, "b": COMPOSE}}}})
    assert order(program, 1) == {"a": {}, "b": {}}


def test_order_follows_the_container():
    loop = {"type": "until", "condition": "@true", "actions": {"c": COMPOSE, "s": {"type": "scope", "actions": {}}}}
    loop["actions"]["s"]["actions"] = {"d": COMPOSE, "e": COMPOSE}
    program = load_program({**REQUEST, "actions": {"loop": loop, "after": COMPOSE}})
    assert order(program, 0) == {"loop": {}, "after": {}}
    assert order(program, 1) == {"c": {}, "s": {"c": SUCCEEDED}}
    assert order(program, 2) == {"d": {}, "e": {"d": SUCCEEDED}}


def test_fields_and_types_of_loom_make_a_container_looms():
    pair = {"a": COMPOSE, "b": COMPOSE}
    ordered = {"a": {}, "b": {"a": SUCCEEDED}}
    loom = [
        {"type": "foreach", "items": [], "actions": pair},
        {"type": "Foreach", "inputs": {"foreach": [], "actions": pair}},
        {"type": "If", "condition": True, "actions": pair},
        {
            "type": "Until",
            "expression": "@true",
            "delay": {"interval": {"count": 1, "unit": "second"}},
            "actions": pair,
        },
        {"type": "while", "condition": "@false", "actions": pair},
        {"type": "DoUntil", "condition": "@true", "actions": pair},
        {"type": "Switch", "on": 1, "cases": {"x": {"case": 1, "actions": pair}}},
    ]
    for container in loom:
        assert order(load_program({**REQUEST, "actions": {"c": container}}), 1) == ordered, container
    azure = [
        {"type": "foreach", "foreach": [], "actions": pair},
        {"type": "until", "expression": "@true", "actions": pair},
        {"type": "scope", "actions": pair},
    ]
    for container in azure:
        assert order(load_program({**REQUEST, "actions": {"c": container}}), 1) == {"a": {}, "b": {}}, container


def test_joins_and_statuses_in_any_case():
    program = load_program(
        {
            **REQUEST,
            "actions": {
                "a": COMPOSE,
                "B": COMPOSE,
                "c": {**COMPOSE, "runAfter": {"A": ["SUCCEEDED", "failed"], "B": ["Skipped", "timedout"]}},
            },
        }
    )
    assert order(program)["c"] == {"a": SUCCEEDED | FAILED, "B": SKIPPED | TIMED_OUT}


def test_run_after_a_trigger_is_always_met():
    program = load_program({**REQUEST, "actions": {"a": {**COMPOSE, "runAfter": {"manual": ["Succeeded"]}}}})
    assert order(program) == {"a": {}}


def test_the_preview_of_2015():
    b = {**COMPOSE, "conditions": [{"dependsOn": "a"}]}
    assert order(load_program({**REQUEST, "actions": {"b": b, "a": COMPOSE}}))["b"] == {"a": SUCCEEDED}


def test_roots_leaves_and_followers():
    after_a = {**COMPOSE, "runAfter": {"a": ["Succeeded"]}}
    program = load_program({**REQUEST, "actions": {"b": after_a, "a": COMPOSE, "c": after_a, "d": COMPOSE}})
    top = program.blocks[0]
    assert names(program, top.nodes) == ["b", "a", "c", "d"]
    assert names(program, top.roots) == ["a", "d"]
    assert names(program, top.leaves) == ["b", "c", "d"]
    assert names(program, program.find("a").followers) == ["b", "c"]


def test_numbers_owners_loops_and_descendants():
    inner = {"type": "until", "condition": "@true", "actions": {"x": COMPOSE}}
    branch = {"type": "if", "condition": "@true", "actions": {"w": inner}, "else": {"actions": {"no": COMPOSE}}}
    program = load_program(
        {"actions": {"f": {"type": "foreach", "items": [], "actions": {"i": branch}}, "end": COMPOSE}}
    )
    assert [(node.index, node.name) for node in program.nodes] == list(enumerate(["f", "i", "w", "x", "no", "end"]))
    assert [block.owner for block in program.blocks] == [-1, 0, 1, 2, 1]
    assert [node.block for node in program.nodes] == [0, 1, 2, 3, 4, 0]
    assert [names(program, node.loops) for node in program.nodes] == [[], ["f"], ["f"], ["f", "w"], ["f"], []]
    assert names(program, program.nodes[0].descendants) == ["i", "w", "x", "no"]
    assert program.nodes[1].blocks == (2, 4)
    assert program.nodes[3].path == "actions.f.actions.i.actions.w.actions.x"
    assert program.nodes[4].path == "actions.f.actions.i.else.actions.no"


def test_names_are_found_exactly_then_without_case():
    program = load_program({**REQUEST, "actions": {"Get It": COMPOSE}})
    assert program.find("Get It") is program.find("get it") is program.find("GET IT") is program.nodes[0]
    assert program.find("get") is None
