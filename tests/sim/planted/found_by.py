"""A seed that finds each planted bug in a short run: a hint that saves time. Run as a module, it prints all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain

import pytest

from clonos_py.runtime.sim import scenario
from clonos_py.runtime.sim.generator import Scenario, generate
from clonos_py.runtime.sim.scenario import run_scenario
from tests.sim.planted import (
    bounds,
    checkpoints,
    feed,
    induced,
    logs,
    loops,
    outputs,
    parts,
    records,
    recovery,
    recovery_line,
    rescaling,
    rollback,
    tables,
    unaligned,
    uncoordinated,
    windows,
)
from tests.sim.planted.around import around
from tests.sim.planted.bug import Bug, Patch
from tests.sim.small_first import small_first

BUGS: dict[str, Bug] = {
    **logs.BUGS,
    **recovery.BUGS,
    **rollback.BUGS,
    **checkpoints.BUGS,
    **unaligned.BUGS,
    **uncoordinated.BUGS,
    **induced.BUGS,
    **recovery_line.BUGS,
    **rescaling.BUGS,
    **outputs.BUGS,
    **feed.BUGS,
    **parts.BUGS,
    **records.BUGS,
    **loops.BUGS,
    **bounds.BUGS,
    **tables.BUGS,
    **windows.BUGS,
}
ACTIONS_MAX = 12_000
"""Twice as many as most of these jobs take without a bug; some bugs let it never end."""
_UNENDED = f"has not ended after {ACTIONS_MAX} actions"
SEEDS_MAX = 2_000
"""Most bugs are found by the first seeds; those that need one failure at one moment of another take some hundred."""
AROUND, TRIED = 100, 100
"""The scenarios around the known seed, and the other seeds, that a test tries. To find others is the work of this
module, run by hand."""
SMALL_OF, SMALLEST = 300, 80
"""Of the first ``SMALL_OF`` seeds the ``SMALLEST`` smallest jobs are tried before all others."""


FOUND_BY = {
    "a_checkpoint_that_completes_while_a_replacement_starts_is_forgotten": 6_011_779,
    "a_piece_is_kept_for_one_epoch_too_few": 557,
    "a_piece_is_dropped_when_its_checkpoint_is_aborted": 78,
    "the_log_of_an_attempt_that_was_rolled_back_is_kept": 78,
    "a_log_is_recorded_from_the_landmark_on": 67,
    "a_log_is_recorded_from_the_feed_point_on": 22,
    "the_log_that_is_replayed_is_not_recorded": 78,
    "frames_are_left_out_of_the_feed": 0,
    "the_seed_and_the_time_are_kept_over_a_feed_point": 21,
    "determinants_are_left_out_of_the_feed": 6,
    "a_fed_standby_does_not_report_what_it_holds": 6,
    "a_feed_point_counts_as_the_restart_point": 47,
    "receivers_are_served_before_the_log_has_arrived": 14,
    "void_checkpoints_are_forgotten_at_a_feed_point": 863,
    "a_feed_point_is_taken_while_barriers_are_aligned": 14,
    "sinks_do_not_get_the_rows_since_the_barrier_again": 6,
    "prepared_results_of_uncompleted_checkpoints_are_left_out": 78,
    "a_point_behind_the_last_checkpoint_is_used": 293,
    "the_replay_begins_behind_the_restart_point": 6,
    "another_attempt_is_followed_with_what_was_known": 391,
    "frames_cut_behind_the_restart_point_are_kept": 4,
    "arrival_order_is_not_logged": 73,
    "timers_are_not_logged": 1,
    "linger_cuts_are_not_logged": 73,
    "aborts_are_not_logged": 133,
    "triggers_are_not_logged": 14,
    "source_reads_are_not_logged": 73,
    "frames_taken_together_are_logged_one_by_one": 132,
    "reads_taken_together_are_logged_one_by_one": 182,
    "a_timer_is_logged_behind_the_event_that_came_next": 1,
    "senders_keep_no_frames_for_a_rebuild": 266,
    "the_extent_is_cut_one_window_early": 44,
    "rows_count_twice_that_a_footprint_holds": 31,
    "a_footprint_is_one_event_ahead_of_its_position": 381,
    "the_oldest_footprint_of_a_key_decides": 31,
    "results_of_a_rebuild_are_sent": 266,
    "replayed_events_are_not_counted": 406,
    "the_order_of_input_is_stored_without_the_last_event": 31,
    "windows_opened_since_the_last_snapshot_are_left_out": 31,
    "the_progress_of_the_rebuild_is_that_of_the_snapshot": 31,
    "random_seed_is_drawn_anew_on_replay": 73,
    "random_seed_is_kept_over_the_barrier": 31,
    "time_is_read_anew_on_replay": 137,
    "services_are_asked_again_on_replay": 79,
    "a_replay_does_not_count_what_it_takes": 266,
    "frames_leave_without_determinants": 183,
    "determinants_leave_one_frame_too_late": 183,
    "a_new_connection_opens_without_a_log": 266,
    "logs_of_upstream_tasks_are_not_passed_on": 32,
    "causal_log_is_truncated_one_epoch_early": 266,
    "an_epoch_starts_one_determinant_too_late": 266,
    "the_time_is_kept_over_the_barrier": 100,
    "an_instance_gets_only_the_state_of_the_former_one_of_its_number": 108,
    "what_was_loaded_ahead_counts_as_the_last_state": 58,
    "results_that_former_instances_have_prepared_are_not_committed": 399,
    "a_task_that_fails_before_the_next_checkpoint_gets_its_former_instance_alone": 58,
    "a_source_begins_anew_at_another_parallelism": 108,
    "frames_leave_without_the_landmark_at_which_they_are_cut": 133,
    "the_codec_keeps_its_state_where_replays_may_begin": 22,
    "timers_are_coded_against_those_of_the_epoch_before": 100,
    "large_answers_are_kept_under_an_epoch_that_is_too_low": 187,
    "rows_are_read_again_though_they_are_logged": 79,
    "a_source_goes_on_where_it_was_before_reads_that_came_from_the_log": 182,
    "replay_starts_before_survivors_have_answered": 266,
    "survivors_do_not_say_all_they_hold": 266,
    "recovering_processes_are_not_asked_what_they_hold": 14,
    "frames_of_a_connection_overtake_each_other": 183,
    "survivors_answer_before_they_close_connections": 34,
    "connections_with_the_dead_are_not_closed": 73,
    "a_replaced_receiver_is_served_again": 5,
    "a_receiver_asks_for_one_frame_too_many": 183,
    "gaps_are_ignored": 266,
    "doubles_are_taken": 32,
    "frames_are_dropped_when_they_are_acknowledged": 73,
    "in_flight_log_is_never_truncated": 5,
    "receivers_do_not_say_what_their_restart_point_covers": 5,
    "a_finished_task_forgets_its_frames": 73,
    "back_pressure_holds_a_replaying_task": 73,
    "a_replacement_starts_from_the_newest_snapshot": 14,
    "a_standby_starts_from_what_it_happens_to_have": 31,
    "a_state_that_storage_did_not_give_is_not_requested_again": 806,
    "a_state_is_loaded_again_that_the_task_has": 10_003_922,
    "sources_begin_at_the_beginning_again": 21,
    "state_of_operators_is_not_restored": 31,
    "the_turn_of_a_rebalance_is_not_restored": 14,
    "watermarks_of_inputs_are_not_restored": 183,
    "timers_are_lost_with_the_task": 95,
    "a_timer_fires_again_after_replay": 7,
    "of_timers_for_the_same_time_one_is_restored": 95,
    "idleness_of_inputs_is_not_restored": 239,
    "lives_are_forgotten_with_the_coordinator": 5,
    "a_receiver_forgets_that_its_sender_has_started_anew": 47,
    "a_replay_goes_on_when_a_task_before_it_starts_anew": 24,
    "survivors_go_on": 97,
    "one_survivor_goes_on": 78,
    "tasks_that_go_back_start_from_the_beginning": 31,
    "timers_of_before_are_kept": 92,
    "frames_that_wait_are_kept": 10,
    "barriers_of_before_count_for_the_next_checkpoint": 38,
    "operators_keep_their_state": 1,
    "what_sinks_had_prepared_is_committed_all_the_same": 70,
    "machines_in_whose_place_others_have_begun_work_on": 97,
    "a_checkpoint_completes_without_its_last_task": 266,
    "the_acknowledgement_of_a_dead_task_counts": 24,
    "the_acknowledgement_of_an_earlier_checkpoint_counts": 73,
    "numbers_of_aborted_checkpoints_are_used_again": 73,
    "frames_count_as_covered_when_the_snapshot_is_taken": 73,
    "state_is_captured_when_it_is_stored": 31,
    "frames_behind_a_barrier_overtake_it": 132,
    "what_an_aborted_checkpoint_prepared_is_forgotten": 399,
    "a_replacement_does_not_commit_what_its_checkpoint_names": 31,
    "a_barrier_does_not_close_the_cut": 95,
    "frames_are_stored_from_where_they_are_acknowledged": 95,
    "a_single_frame_under_way_is_not_stored": 183,
    "snapshots_are_durable_without_the_frames_between_them": 183,
    "stored_frames_are_not_restored": 31,
    "frames_from_before_the_senders_restart_point_are_depended_on": 67,
    "determinants_are_left_out_of_snapshots": 31,
    "frames_are_stored_from_where_their_receivers_are": 78,
    "frames_that_are_stored_already_are_left_out_of_snapshots": 78,
    "determinants_are_stable_before_the_snapshot_counts": 97,
    "what_a_dead_task_has_stored_counts_after_its_restart": 14,
    "replacements_are_not_asked_what_their_snapshots_hold": 5,
    "replacements_answer_before_their_state_is_here": 31,
    "a_delta_goes_on_from_another_base_than_it_names": 503,
    "a_delta_leaves_out_a_task_with_a_new_snapshot": 7,
    "a_base_is_deleted_while_a_kept_delta_goes_on_from_it": 5,
    "a_standby_takes_the_logs_of_an_earlier_snapshot": 252,
    "what_no_manifest_names_yet_is_deleted": 175,
    "vectors_are_not_saved_in_snapshots": 132,
    "a_replay_does_not_look_at_the_stamps_of_the_frames_it_takes": 137,
    "forced_snapshots_are_no_events_of_the_log": 189,
    "stamps_on_a_new_connection_go_on_from_those_on_the_old": 48,
    "frames_force_no_snapshot": 6,
    "sinks_commit_what_the_line_has_not_passed": 175,
    "a_replacement_commits_what_the_line_has_not_passed": 187,
    "a_replacement_forgets_what_is_still_to_be_committed": 94,
    "senders_drop_frames_that_lie_behind_the_line": 5,
    "tasks_behind_a_failed_one_go_on": 73,
    "tasks_go_back_to_their_newest_snapshots": 5,
    "only_the_newest_snapshot_of_a_receiver_is_looked_at": 2,
    "snapshots_ahead_of_the_line_count_again_for_the_next_coordinator": 5,
    "tasks_go_back_farther_than_they_have_to": 94,
    "a_sink_that_has_ended_commits_all_that_it_has_prepared": 266,
    "frames_behind_the_line_are_left_out_of_snapshots": 1,
    "frames_that_are_stored_are_not_retained_after_a_restart": 149,
    "rows_are_visible_before_their_determinants_are_durable": 37,
    "only_a_sinks_own_log_is_written": 26,
    "what_is_visible_is_written_again": 73,
    "outputs_are_not_asked_in_the_round": 16,
    "a_sink_answers_before_it_knows_its_output": 34,
    "the_first_log_of_an_epoch_is_not_complete": 5,
    "the_first_log_of_an_epoch_lacks_the_end_of_the_one_before": 301,
    "logs_of_an_output_go_before_their_checkpoint_is_complete": 73,
    "a_snapshot_is_durable_before_the_rows_that_it_covers": 218,
    "replaced_sinks_go_on_writing": 9,
    "checkpoints_of_which_only_logs_speak_are_numbered_again": 5,
    "the_log_of_a_sink_is_not_kept": 73,
    "what_an_output_holds_is_told_but_not_kept": 125,
    "the_head_of_a_loop_waits_for_the_barriers_of_its_feedback": 183,
    "what_is_fed_back_is_not_stored": 183,
    "feedback_holds_tasks_back": 1,
    "a_loop_ends_when_rows_are_on_their_way": 61,
    "a_loop_ends_when_rows_wait_to_be_cut_or_are_in_work": 91,
    "heads_are_not_told_again_after_a_failure": 251,
    "tasks_of_a_loop_connect_before_they_have_their_own_log": 46,
    "a_log_comes_without_that_of_its_holder_which_it_depends_on": 1160,
    "frames_are_acknowledged_before_they_are_taken": 78,
    "checksums_of_inputs_are_never_dropped": 183,
    "checksums_of_frames_that_can_be_made_again_are_never_dropped": 21,
    "notes_of_snapshots_are_never_dropped": 183,
    "lost_connections_are_never_forgotten": 266,
    "partitions_none_of_which_is_active_are_at_the_end_of_time": 123,
    "an_input_that_has_ended_is_at_the_end_of_time_beside_an_idle_one": 55,
    "event_time_waits_for_the_partition_that_fell_idle_last": 84,
    "event_time_waits_for_the_input_that_fell_idle_last": 19,
    "partitions_are_never_idle": 19,
    "rows_linger_by_the_time_of_day": 338,
    "timers_have_no_limit": 33,
    "snapshots_take_what_is_left_for_timers_from_the_time_of_day": 95,
    "a_manifest_that_hangs_is_waited_for_without_an_end": 73,
    "a_coordinator_takes_its_standstill_for_the_silence_of_others": 7,
    "the_time_of_the_takeover_counts_as_silence": 32,
    "keys_that_have_closed_are_not_marked": 80,
    "a_point_is_sent_before_what_it_has_published_is_visible": 218,
    "a_causal_sink_gets_the_rows_since_the_barrier_again": 73,
    "rows_that_wait_for_a_table_are_not_stored": 341,
    "inputs_that_have_settled_are_not_restored": 183,
    "a_table_is_empty_after_a_restart": 189,
    "the_watermark_waits_for_a_table": 74,
    "a_session_is_joined_without_the_rows_of_one_side_of_before": 1_405,
    "versions_of_before_are_not_restored": 8_541,
    "rows_of_open_windows_are_not_restored": 2_140,
    "sessions_that_have_changed_are_not_restored": 1_230,
    "sessions_that_were_shown_stay_beside_the_one_that_contains_them": 44,
    "distinct_counts_ask_a_chunk_of_other_key_groups_for_its_columns": 809,
    "operators_that_may_go_back_count_as_ended": 10_009_890,
}
"""The others are found by seed 0."""


def problems(name: str, made: Scenario) -> list[str]:
    """The problems that the simulator reports in a run of this scenario with the bug."""
    found = _problems(made, BUGS[name].plant)
    if not any(_UNENDED in problem for problem in found):
        return found
    return found if BUGS[name].endless and not _problems(made) else []


def without_a_bug(made: Scenario) -> list[str]:
    """The problems that the simulator reports in a run of this scenario, which may take longer than the others."""
    return run_scenario(made).problems


def _problems(made: Scenario, plant: Patch | None = None) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenario, "ACTIONS_MAX", ACTIONS_MAX)
        if plant is not None:
            plant(patch)
        return run_scenario(made).problems


def tried(name: str) -> Iterator[Scenario]:
    """What a test tries: the known seed, scenarios around it, and the first seeds."""
    known = generate(FOUND_BY.get(name, 0), BUGS[name].range)
    yield known
    yield from around(known, AROUND)
    for seed in range(TRIED):
        yield generate(seed, BUGS[name].range)


def short_seed(name: str) -> int:
    """The seed of the smallest job that finds the bug; or the first of all seeds, -1 if none of them finds it."""
    range_ = BUGS[name].range
    small = small_first(range(SMALL_OF), range_)[:SMALLEST]
    all_ = (generate(seed, range_) for seed in range(SEEDS_MAX))
    return next((made.seed for made in chain(small, all_) if problems(name, made)), -1)


def main(names: Sequence[str]) -> None:
    """Prints the seeds of these bugs, or of all."""
    names = names or list(BUGS)
    with ProcessPoolExecutor() as pool:
        for name, seed in zip(names, pool.map(short_seed, names), strict=True):
            if seed:
                sys.stdout.write(f'    "{name}": {seed},\n')


if __name__ == "__main__":
    main(sys.argv[1:])
