"""The seed that finds a planted bug first: a hint that saves time. Run as a module, it prints the list again."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from clonos_py.runtime.sim import scenario
from clonos_py.runtime.sim.scenario import run_seed
from tests.sim.planted import (
    bounds,
    checkpoints,
    induced,
    logs,
    loops,
    outputs,
    recovery,
    recovery_line,
    rollback,
    unaligned,
    uncoordinated,
)
from tests.sim.planted.bug import Bug

BUGS: dict[str, Bug] = {
    **logs.BUGS,
    **recovery.BUGS,
    **rollback.BUGS,
    **checkpoints.BUGS,
    **unaligned.BUGS,
    **uncoordinated.BUGS,
    **induced.BUGS,
    **recovery_line.BUGS,
    **outputs.BUGS,
    **loops.BUGS,
    **bounds.BUGS,
}
ACTIONS_MAX = 30_000
"""More than any of these jobs takes without a bug; some bugs let it never end."""
SEEDS_MAX = 2_000
"""Most bugs are found by the first seeds; those that need one failure at one moment of another take some hundred."""


FOUND_BY = {
    "timers_are_not_logged": 1,
    "aborts_are_not_logged": 14,
    "triggers_are_not_logged": 14,
    "frames_taken_together_are_logged_one_by_one": 6,
    "reads_taken_together_are_logged_one_by_one": 24,
    "a_timer_is_logged_behind_the_event_that_came_next": 1,
    "random_seed_is_drawn_anew_on_replay": 1,
    "random_seed_is_kept_over_the_barrier": 21,
    "time_is_read_anew_on_replay": 1,
    "causal_log_is_truncated_one_epoch_early": 1,
    "an_epoch_starts_one_determinant_too_late": 1,
    "the_time_is_kept_over_the_barrier": 100,
    "timers_are_coded_against_those_of_the_epoch_before": 100,
    "large_answers_are_kept_under_an_epoch_that_is_too_low": 143,
    "a_source_goes_on_where_it_was_before_reads_that_came_from_the_log": 6,
    "recovering_processes_are_not_asked_what_they_hold": 9,
    "frames_of_a_connection_overtake_each_other": 3,
    "survivors_answer_before_they_close_connections": 15,
    "in_flight_log_is_never_truncated": 17,
    "receivers_do_not_say_what_their_restart_point_covers": 17,
    "a_finished_task_forgets_its_frames": 4,
    "a_replacement_starts_from_the_newest_snapshot": 1,
    "a_standby_starts_from_what_it_happens_to_have": 21,
    "sources_begin_at_the_beginning_again": 21,
    "state_of_operators_is_not_restored": 21,
    "the_turn_of_a_rebalance_is_not_restored": 10,
    "timers_are_lost_with_the_task": 1,
    "of_timers_for_the_same_time_one_is_restored": 31,
    "idleness_of_inputs_is_not_restored": 17,
    "lives_are_forgotten_with_the_coordinator": 102,
    "a_receiver_forgets_that_its_sender_has_started_anew": 102,
    "a_replay_goes_on_when_a_task_before_it_starts_anew": 132,
    "tasks_that_go_back_start_from_the_beginning": 20,
    "timers_of_before_are_kept": 6,
    "frames_that_wait_are_kept": 4,
    "barriers_of_before_count_for_the_next_checkpoint": 4,
    "operators_keep_their_state": 1,
    "what_sinks_had_prepared_is_committed_all_the_same": 22,
    "a_checkpoint_completes_without_its_last_task": 1,
    "the_acknowledgement_of_a_dead_task_counts": 1,
    "the_acknowledgement_of_an_earlier_checkpoint_counts": 59,
    "numbers_of_aborted_checkpoints_are_used_again": 1,
    "frames_count_as_covered_when_the_snapshot_is_taken": 9,
    "state_is_captured_when_it_is_stored": 21,
    "frames_behind_a_barrier_overtake_it": 5,
    "what_an_aborted_checkpoint_prepared_is_forgotten": 21,
    "a_replacement_does_not_commit_what_its_checkpoint_names": 21,
    "a_barrier_does_not_close_the_cut": 5,
    "frames_are_stored_from_where_they_are_acknowledged": 1,
    "stored_frames_are_not_restored": 21,
    "frames_from_before_the_senders_restart_point_are_depended_on": 67,
    "determinants_are_left_out_of_snapshots": 17,
    "frames_are_stored_from_where_their_receivers_are": 1,
    "frames_that_are_stored_already_are_left_out_of_snapshots": 1,
    "determinants_are_stable_before_the_snapshot_counts": 1,
    "what_a_dead_task_has_stored_counts_after_its_restart": 10,
    "replacements_are_not_asked_what_their_snapshots_hold": 17,
    "replacements_answer_before_their_state_is_here": 17,
    "a_delta_goes_on_from_another_base_than_it_names": 24,
    "a_delta_leaves_out_a_task_with_a_new_snapshot": 6,
    "a_base_is_deleted_while_a_kept_delta_goes_on_from_it": 4,
    "receivers_do_not_learn_that_logs_have_arrived": 405,
    "a_standby_takes_the_logs_of_an_earlier_snapshot": 161,
    "what_no_manifest_names_yet_is_deleted": 5,
    "vectors_are_not_saved_in_snapshots": 6,
    "forced_snapshots_are_no_events_of_the_log": 24,
    "stamps_on_a_new_connection_go_on_from_those_on_the_old": 41,
    "frames_force_no_snapshot": 3,
    "sinks_commit_what_the_line_has_not_passed": 1,
    "a_replacement_commits_what_the_line_has_not_passed": 81,
    "a_replacement_forgets_what_is_still_to_be_committed": 81,
    "senders_drop_frames_that_lie_behind_the_line": 5,
    "tasks_go_back_to_their_newest_snapshots": 1,
    "only_the_newest_snapshot_of_a_receiver_is_looked_at": 5,
    "snapshots_ahead_of_the_line_count_again_for_the_next_coordinator": 1,
    "tasks_go_back_farther_than_they_have_to": 100,
    "frames_behind_the_line_are_left_out_of_snapshots": 1,
    "frames_that_are_stored_are_not_retained_after_a_restart": 1,
    "rows_are_visible_before_their_determinants_are_durable": 37,
    "only_a_sinks_own_log_is_written": 26,
    "what_is_visible_is_written_again": 9,
    "outputs_are_not_asked_in_the_round": 9,
    "a_sink_answers_before_it_knows_its_output": 16,
    "the_first_log_of_an_epoch_is_not_complete": 5,
    "the_first_log_of_an_epoch_lacks_the_end_of_the_one_before": 187,
    "logs_of_an_output_go_before_their_checkpoint_is_complete": 9,
    "a_snapshot_is_durable_before_the_rows_that_it_covers": 5,
    "replaced_sinks_go_on_writing": 9,
    "checkpoints_of_which_only_logs_speak_are_numbered_again": 26,
    "the_log_of_a_sink_is_not_kept": 9,
    "what_an_output_holds_is_told_but_not_kept": 55,
    "the_end_of_a_loop_is_not_logged": 393,
    "a_loop_ends_when_rows_are_on_their_way": 293,
    "a_loop_ends_when_rows_wait_to_be_cut_or_are_in_work": 68,
    "heads_are_not_told_again_after_a_failure": 21,
    "tasks_of_a_loop_connect_before_they_have_their_own_log": 100,
    "tasks_of_a_loop_wait_for_each_other_to_have_caught_up": 24,
    "checksums_of_frames_that_can_be_made_again_are_never_dropped": 21,
    "a_finished_partition_is_at_the_end_of_time_beside_an_idle_one": 2,
    "an_input_that_has_ended_is_at_the_end_of_time_beside_an_idle_one": 23,
    "rows_linger_by_the_time_of_day": 25,
    "timers_have_no_limit": 24,
    "snapshots_take_what_is_left_for_timers_from_the_time_of_day": 1,
    "a_manifest_that_hangs_is_waited_for_without_an_end": 1,
    "a_coordinator_takes_its_standstill_for_the_silence_of_others": 1,
    "the_time_of_the_takeover_counts_as_silence": 3,
}
"""The others are found by seed 0."""


def problems(name: str, seed: int) -> list[str]:
    """The problems that the simulator reports in a run of this seed with the bug."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenario, "ACTIONS_MAX", ACTIONS_MAX)
        BUGS[name].plant(patch)
        return list(run_seed(seed, BUGS[name].range).problems)


def first_seed(name: str) -> int:
    """-1 if none of them finds it."""
    return next((seed for seed in range(SEEDS_MAX) if problems(name, seed)), -1)


def main() -> None:
    with ProcessPoolExecutor() as pool:
        for name, seed in zip(BUGS, pool.map(first_seed, BUGS), strict=True):
            if seed:
                sys.stdout.write(f'    "{name}": {seed},\n')


if __name__ == "__main__":
    main()
