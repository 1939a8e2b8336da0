"""What of the promises to the other runtimes cannot hold on Temporal, test by test, and why.

A name is `module::test`, with its parameters in brackets where only that one of them is meant.
"""

from __future__ import annotations

import os

CLOCK = "The server's clock cannot be set forward: what comes after an hour is shown by the reducer's own tests."
AGAIN = "A body that waits leaves its worker, and runs again from the top once there is an answer; nothing holds it."
MEMORY = "The cluster holds the runs and not a process: none is in memory, released or brought back here."
WORKER = (
    "What a run has done is read by asking a worker that has its code, and entries are written by one: there is none."
)
QUEUE = (
    "Every worker of a task queue may get any run of it: the others fail its tasks, and the server tries again later."
)
CODE = "Other code takes effect once no body of the run is at work; elsewhere a take-up ends them all."
TOLD = "The worker does not know who waits in its process: the server tells of an end, and the run is read."
KEPT = "A run lies in its history on the server, for as long as its namespace says: no file, no snapshot, no pruning."
LIMIT = "The server takes 2 MiB in a payload."
SDK = "The context of an activity, which all that it starts copies, holds the SDK's worker and so its workflows."

EXCEPTIONS: dict[str, str] = {
    "test_children::test_a_child_may_end_while_its_parent_is_not_there": QUEUE,
    "test_children_in_turn::test_children_of_the_same_workflow_do_not_stand_still": MEMORY,
    "test_children_in_turn::test_the_limit_holds_for_what_is_at_work": MEMORY,
    "test_children_in_turn::test_a_child_by_way_of_another_workflow_does_not_stand_still": MEMORY,
    "test_finding::test_runs_are_found_by_how_long_they_are_idle": CLOCK,
    "test_flow_controls::test_a_timer_that_fires_in_a_paused_run_counts_when_it_is_resumed": CLOCK,
    "test_flow_children::test_parent_and_child_in_processes_of_their_own": QUEUE,
    "test_flow_release::test_a_flow_that_waits_for_time_is_released": CLOCK,
    "test_flow_release::test_a_flow_that_waits_for_somebody_is_released": MEMORY,
    "test_flow_release::test_a_wait_for_somebody_has_an_end_while_nobody_is_alive": CLOCK,
    "test_flow_release::test_a_delay_that_ended_while_nobody_was_alive": CLOCK,
    "test_flow_versions::test_a_damaged_document_parks_the_run": KEPT,
    "test_flow_versions::test_a_workflow_in_python_does_not_take_a_flows_runs": QUEUE,
    "test_history::test_a_long_run_is_the_same_by_its_snapshot": KEPT,
    "test_history::test_a_pruned_run_goes_on_without_its_past": KEPT,
    "test_history::test_a_fork_by_a_client_is_run_by_whoever_has_the_code": WORKER,
    "test_joins::test_other_code_may_have_more_workers": CODE,
    "test_moving::test_the_time_on_the_way_does_not_count": CLOCK,
    "test_moving::test_runs_are_purged_by_their_age": CLOCK,
    "test_moving::test_ended_runs_are_kept_for_as_long_as_was_asked": CLOCK,
    "test_release::test_an_idle_run_is_released_and_woken_by_each_event": MEMORY,
    "test_release::test_a_body_that_runs_again_has_the_answers_that_it_has_had": MEMORY,
    "test_release::test_a_body_that_takes_another_way_when_it_runs_again_parks_its_run": MEMORY,
    "test_release::test_looking_does_not_bring_a_run_back": MEMORY,
    "test_release::test_released_runs_wait_for_another_process": MEMORY,
    "test_release::test_a_run_in_memory_goes_on_where_it_waits": AGAIN,
    "test_release::test_no_more_runs_at_once_than_their_workflow_allows": MEMORY,
    "test_retrying::test_a_client_may_ask_for_the_retry": WORKER,
    "test_retrying::test_the_delay_of_a_retry_outlives_the_process": CLOCK,
    "test_schedules::test_runs_are_started_in_time": CLOCK,
    "test_schedules::test_of_what_was_missed_in_a_long_night_the_last_is_started": CLOCK,
    "test_schedules::test_all_that_was_missed_is_started_if_it_shall_be": CLOCK,
    "test_schedules::test_a_crash_right_after_a_start_starts_nothing_twice": CLOCK,
    "test_schedules::test_a_client_makes_schedules_and_any_worker_starts_their_runs": CLOCK,
    "test_schedules::test_the_same_again_changes_nothing_and_another_one_replaces_it": CLOCK,
    "test_schedules::test_an_older_one_whose_cancellation_was_lost_ends_itself": CLOCK,
    "test_schedules::test_what_is_unscheduled_starts_nothing_and_can_be_scheduled_again": CLOCK,
    "test_schedules::test_a_paused_schedule_starts_nothing_until_it_is_resumed": CLOCK,
    "test_schedules::test_a_start_that_is_refused_is_told_and_the_next_one_tried": CLOCK,
    "test_schedules::test_a_flow_sees_to_its_schedule_itself_and_a_new_version_replaces_it": CLOCK,
    "test_schedules::test_what_was_asked_of_a_schedule_is_seen_before_somebody_does_it": WORKER,
    "test_step_context::test_what_a_body_leaves_behind_holds_no_workflow": SDK,
    "test_stored_definitions::test_a_client_that_puts_works_for_nothing": WORKER,
    "test_stored_definitions::test_an_odd_entry_does_not_keep_a_flow_from_running": WORKER,
    "test_stored_definitions::test_joining_again_makes_no_version_current": MEMORY,
    "test_timers::test_a_sleep_that_ended_while_nobody_was_alive": CLOCK,
    "test_timers::test_the_end_of_a_wait_outlives_the_process": CLOCK,
    "test_timers::test_a_runs_timeout_counts_the_time_it_is_alive": CLOCK,
    "test_timers::test_time_in_which_a_released_run_waits_counts": CLOCK,
    "test_timers::test_time_never_goes_back_within_a_run": CLOCK,
    "test_told_ends::test_the_row_and_the_last_event_are_what_is_stored": TOLD,
    "test_told_ends::test_the_row_of_a_flow": TOLD,
    "test_told_ends::test_an_event_for_a_released_run_brings_it_back_with_one_claim": MEMORY,
    "test_values::test_a_large_event": LIMIT,
}

LONG = "It takes long there: `make conformance-temporal` runs it too."

IN_THE_LONG_FORM = frozenset(
    {
        "test_crashes::test_a_crash_at_any_place_leaves_one_stream_and_one_store",
        "test_events::test_acknowledged_events_survive_a_crash_in_their_order",
        "test_events::test_events_may_come_before_anybody_works",
        "test_exits::test_in_every_handler_of_a_flow_it_is_a_failure_of_the_action",
        "test_finding::test_a_long_list_comes_in_pieces",
        "test_flow_children::test_a_crash_in_each_of_the_children",
        "test_flow_children::test_an_actor_remembers_across_crashes",
        "test_flow_children::test_an_actor_takes_one_message_at_a_time",
        "test_flow_crashes::test_a_parallel_foreach_repeats_only_what_had_not_ended",
        "test_flow_controls::test_a_fork_at_any_tick_ends_the_same",
        "test_handlers::test_many_runs_at_once",
        "test_history::test_every_past_tick_can_be_forked",
        "test_history::test_the_past_of_an_ended_run_can_be_looked_at",
        "test_moving::test_an_ended_run_is_kept_elsewhere",
        "test_parked::test_a_parked_run_stays_parked_without_growing",
        "test_release::test_no_more_runs_in_memory_than_allowed",
        "test_stored_definitions::test_putting_at_once_gives_every_content_its_own_number",
        "test_stream_writes::test_any_number_of_tokens_may_be_streamed_again",
        "test_timers::test_many_sleeping_runs_wake_each_at_its_time",
        "test_values::test_names_of_any_kind",
        "test_values::test_values_come_back_as_they_were",
    }
)


def why_not(test: str) -> str | None:
    """The reason why a test does not run on Temporal; None if it does."""
    if test.endswith("-released]"):
        return MEMORY  # it is the same test as the one beside it
    name = test.partition("[")[0]
    if name in IN_THE_LONG_FORM and "LOOM_FULL" not in os.environ:
        return LONG
    return EXCEPTIONS.get(test, EXCEPTIONS.get(name))
