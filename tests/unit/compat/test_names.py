"""Every name that python programs import from `workflows` is there and is Loom's own object."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest

EVENTS = """
    CollectionReleaseEvent DictLikeModel Event EventType HumanResponseEvent IdleReleasedEvent InputRequiredEvent
    InternalDispatchEvent SerializableEvent SerializableEventType SerializableException SerializableOptionalEvent
    SerializableOptionalException StartEvent StepFailedEvent StepState StepStateChanged StopEvent UnhandledEvent
    WorkflowCancelledEvent WorkflowFailedEvent WorkflowIdleEvent WorkflowTimedOutEvent
"""
ERRORS = """
    ContextSerdeError ContextStateError WorkflowCancelledByUser WorkflowConfigurationError WorkflowDone
    WorkflowRuntimeError WorkflowStepDoesNotExistError WorkflowTimeoutError WorkflowValidationError
"""
RETRY = """
    ConstantDelayRetryPolicy ExponentialBackoffRetryPolicy RetryCondition RetryInfo RetryPolicy StopCondition
    WaitStrategy retry_all retry_always retry_any retry_if_exception retry_if_exception_cause_type
    retry_if_exception_message
    retry_if_exception_type retry_if_not_exception_message retry_if_not_exception_type retry_never retry_policy
    retry_unless_exception_type stop_after_attempt stop_after_delay stop_all stop_any stop_before_delay stop_never
    time_unit_type wait_chain wait_combine wait_exponential wait_exponential_jitter wait_fixed wait_full_jitter
    wait_incrementing wait_none wait_random wait_random_exponential
"""
STATE_STORE = """
    DictState InMemoryStateStore MAX_DEPTH StateCheckpoint StateStore UnserializableKeyWarning apply_state_patch
    copy_state_for_edit get_by_path infer_state_type set_by_path
"""
GRAPH = """
    WorkflowEventNode WorkflowExternalNode WorkflowGenericNode WorkflowGraph WorkflowGraphEdge WorkflowGraphNode
    WorkflowNodeBase WorkflowResourceConfigNode WorkflowResourceNode WorkflowStepNode get_workflow_representation
"""
STEPS = """
    CatchErrorHandler StepConfig StepFunction StepGraphCheck StepRole WorkflowGraphCheck catch_error make_step_function
    step
"""
UTILS = """
    BUSY_WAIT_DELAY StepSignatureSpec _get_param_types _get_return_types get_steps_from_class get_steps_from_instance
    inspect_signature is_free_function validate_step_signature
"""
CONTEXT = {"Context": "context", "BaseSerializer JsonSerializer PickleSerializer": "serializers"}

# module below `workflows`: names -> the module below `loom` that they come from
SURFACE: dict[str, dict[str, str]] = {
    "": {"Context": "context", "Workflow": "workflow", "catch_error step": "decorators"},
    "workflow": {"Workflow WorkflowMeta": "workflow"},
    "decorators": {STEPS: "decorators"},
    "events": {EVENTS: "events", "UnreconstructedException": "serializers"},
    "errors": {ERRORS: "errors"},
    "context": CONTEXT,
    "context.context": CONTEXT,
    "context.state_store": {STATE_STORE: "state_store"},
    "context.serializers": {"BaseSerializer JsonSerializer PickleSerializer JsonPickleSerializer": "serializers"},
    "context.utils": {"get_qualified_name import_module_from_qualified_name": "compat_names"},
    "handler": {"WorkflowHandler": "handler"},
    "types": {"RunResultT StopEventT": "compat_names"},
    "resource": {"Resource ResourceConfig ResourceDefinition ResourceDescriptor ResourceManager": "resources"},
    "retry_policy": {RETRY: "retry"},
    "collect": {"All Cardinality Collect Take": "step_config"},
    "testing": {"WorkflowTestRunner": "loom.testing.runner"},
    "testing.runner": {"WorkflowTestResult WorkflowTestRunner": "loom.testing.runner"},
    "representation": {GRAPH: "representation"},
    "plugins": {"BasicRuntime basic_runtime get_current_runtime": "loom.runtime.memory"},
    "plugins.basic": {"BasicRuntime JournalRecord basic_runtime": "loom.runtime.memory"},
    "utils": {UTILS: "signature"},
    "runtime.types.results": {"WaitingForEvent": "compat_names"},
}
NAMES = [
    (module, name, home if home.startswith("loom.") else f"loom.steps.{home}")
    for module, groups in SURFACE.items()
    for names, home in groups.items()
    for name in names.split()
]


@pytest.mark.parametrize(("module", "name", "home"), NAMES)
def test_name_is_looms_own_object(module: str, name: str, home: str) -> None:
    found = getattr(import_module(f"loom.compat.{module}".rstrip(".")), name)
    assert found is getattr(import_module(home), name)


@pytest.mark.parametrize("module", SURFACE)
def test_module_declares_exactly_its_names(module: str) -> None:
    declared = import_module(f"loom.compat.{module}".rstrip(".")).__all__
    assert sorted(declared) == sorted(name for owner, name, _ in NAMES if owner == module)


@pytest.mark.parametrize("package", ["workflows", "llama_agents.workflows"])
def test_name_is_the_same_object_under_the_package_it_stands_for(package: str) -> None:
    program = """if True:
        import json, sys
        from importlib import import_module
        import loom.compat
        loom.compat.install()
        package, names = sys.argv[1], json.loads(sys.argv[2])
        wrong = [
            (module, name)
            for module, name, home in names
            if getattr(import_module(f"{package}.{module}".rstrip(".")), name) is not getattr(import_module(home), name)
        ]
        print(len(names), wrong)
    """
    command = [sys.executable, "-c", program, package, json.dumps(NAMES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(NAMES)} []\n"


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = import_module("loom.compat").nonsense
