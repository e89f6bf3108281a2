"""Checks that cannot fail are defects: each protocol bug, planted once, must be found by the simulator."""

from __future__ import annotations

import pytest

from tests.often import often
from tests.sim.planted.found_by import BUGS, FOUND_BY, problems, tried, without_a_bug

SLOWLY_FOUND = {
    "a_fed_standby_does_not_report_what_it_holds",
    "a_feed_point_is_taken_while_barriers_are_aligned",
    "a_footprint_is_one_event_ahead_of_its_position",
    "a_log_comes_without_that_of_its_holder_which_it_depends_on",
    "a_piece_is_kept_for_one_epoch_too_few",
    "a_sink_restores_a_state_that_it_never_had",
    "a_state_is_loaded_again_that_the_task_has",
    "an_instance_gets_only_the_state_of_the_former_one_of_its_number",
    "another_attempt_is_followed_with_what_was_known",
    "barriers_of_before_count_for_the_next_checkpoint",
    "determinants_are_left_out_of_the_feed",
    "feedback_holds_tasks_back",
    "frames_behind_the_line_are_left_out_of_snapshots",
    "frames_leave_without_the_landmark_at_which_they_are_cut",
    "keys_that_have_closed_are_not_marked",
    "prepared_results_of_uncompleted_checkpoints_are_left_out",
    "receivers_are_served_before_the_log_has_arrived",
    "replayed_events_are_not_counted",
    "rows_count_twice_that_a_footprint_holds",
    "sinks_do_not_get_the_rows_since_the_barrier_again",
    "the_extent_is_cut_one_window_early",
    "the_oldest_footprint_of_a_key_decides",
    "the_order_of_input_is_stored_without_the_last_event",
    "the_progress_of_the_rebuild_is_that_of_the_snapshot",
    "the_replay_begins_behind_the_restart_point",
    "void_checkpoints_are_forgotten_at_a_feed_point",
    "windows_opened_since_the_last_snapshot_are_left_out",
}
"""Those that large jobs show, or late seeds: they take two thirds of the time of all."""


@pytest.mark.parametrize("name", often(BUGS, BUGS.keys() - SLOWLY_FOUND))
def test_the_simulator_finds(name: str) -> None:
    for made in tried(name):
        if found := problems(name, made):
            not_planted = found[0].startswith(("AttributeError", "KeyError", "NameError", "TypeError"))
            assert not not_planted, f"the patched code has changed: {found[0]}"
            assert not without_a_bug(made), "the engine fails without the planted bug, too"
            return
    pytest.fail(f"neither its seed nor others find it: search with python -m tests.sim.planted.found_by {name}")


def test_every_hint_names_a_planted_bug() -> None:
    assert FOUND_BY.keys() <= BUGS.keys()
    assert BUGS.keys() >= SLOWLY_FOUND
