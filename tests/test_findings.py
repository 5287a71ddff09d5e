"""What people stumbled over who tried this as new users, each with the tests that would fail if it came back."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ASKING, RESUMING = "federation/server/test_asking.py", "federation/server/test_resuming.py"
INTEGRITY, LEDGER = "commands/test_integrity.py", "commands/test_ledger.py"
FOUND: dict[str, dict[str, list[str]]] = {
    "budgets that run out ended a run in an error, without a model and without its last receipt": {
        ASKING: [
            "test_all_are_spent_at_once_which_is_the_normal_end",
            "test_one_of_three_is_spent_so_nobody_is_charged_and_the_run_ends_with_the_last_model_and_why",
        ],
        "federation/server/test_buffered.py": ["test_a_spent_client_is_left_alone_and_too_few_is_said_in_one_sentence"],
    },
    "a run without a verified round was a success": {
        ASKING: ["test_a_run_without_a_verified_round_says_so_and_returns_nothing"]
    },
    "a server that was killed had no model, and its chain began anew": {
        RESUMING: [
            "test_a_server_killed_at_any_write_goes_on_in_the_same_chain_and_nobody_pays_twice",
            "test_the_same_script_again_after_kill_9_makes_the_rounds_that_were_left",
        ],
        "federation/test_chaos.py": ["test_whoever_dies_and_whenever_nothing_paid_for_is_lost"],
    },
    "whoever left before it had confirmed a round stopped the session for all, without a word": {
        "federation/server/test_confirming.py": [
            "test_the_run_ends_with_what_it_waits_for_and_goes_on_once_that_comes",
            "test_what_waits_for_a_buffer_is_kept_and_nobody_trains_for_one_that_cannot_fill",
            "test_a_registry_without_whoever_must_confirm_waits_until_it_has",
        ]
    },
    "a server killed while it opened a session left receipts of two": {
        RESUMING: ["test_a_server_killed_while_it_opens_a_session_leaves_the_receipts_of_one"]
    },
    "whoever hung was waited for again and again, in every exchange of every round": {
        "federation/server/test_round_clock.py": [
            "test_whoever_hangs_takes_no_more_than_the_time_of_a_round_and_the_others_go_on",
            "test_a_node_that_answers_no_greeting_is_waited_for_once_and_welcome_as_soon_as_it_answers",
        ]
    },
    "attempts were spent while a guard was being started": {
        ASKING: ["test_a_round_waits_for_a_guard_that_is_being_started_and_spends_no_attempt"]
    },
    "one was spent, and the others were charged for a round that could not be": {
        ASKING: ["test_no_work_is_sent_to_whoever_would_decline_it"]
    },
    "a plan recommended what init could not make": {
        "commands/test_init.py": ["test_a_plan_becomes_a_policy_and_a_budget_that_lasts_as_long_as_was_promised"]
    },
    "a policy that affords nothing was opened without a word": {
        "ledger/test_promises.py": ["test_a_policy_that_affords_no_round_opens_nothing_and_says_what_would"]
    },
    "a budget that the policy raised was ignored in silence": {
        "ledger/test_raising.py": ["test_the_policy_alone_raises_nothing_and_the_refusal_names_the_command"]
    },
    "a key was rotated without the old one, which locked the ledger": {
        LEDGER: ["test_a_key_is_not_rotated_without_the_one_in_force"]
    },
    "a key that others may read was taken by one command and refused by another": {
        "commands/test_surface.py": ["test_a_key_that_others_may_read_is_refused_by_every_command_with_the_same_words"]
    },
    "init took a name that no registry takes": {
        "commands/test_init.py": ["test_a_name_that_no_registry_takes_is_refused_before_the_budget_is_opened"]
    },
    "the registry of a running federation could not change, and nobody could be removed": {
        "federation/test_rotation.py": [
            "test_a_hospital_joins_and_another_leaves_while_the_federation_runs",
            "test_a_hospital_that_lost_its_key_gets_another_and_its_ledger_goes_on",
        ],
        "federation/server/test_buffered_rotation.py": ["test_a_hospital_joins_and_another_leaves_between_two_buffers"],
        "federation/test_deployed_rotation.py": ["test_members_come_and_go_and_change_keys_behind_guards"],
    },
    "a registry of one was signed": {INTEGRITY: ["test_a_registry_too_small_for_any_round_is_not_signed"]},
    "another consortium's key made the next registry": {INTEGRITY: ["test_only_the_same_consortium_goes_on"]},
    "adopt-head wanted a file that the hospital does not have": {
        LEDGER: ["test_the_head_that_suspended_a_ledger_is_adopted_without_a_file"]
    },
    "what came of a round was not to be seen under flwr run": {
        ASKING: ["test_one_of_three_is_spent_so_nobody_is_charged_and_the_run_ends_with_the_last_model_and_why"],
        "federation/server/test_buffered.py": [
            "test_the_server_steps_when_a_buffer_is_full_and_records_how_stale_it_was"
        ],
    },
    "a guard said nothing of when it charged, for which round and how much ε": {
        "commands/test_guard_log.py": ["test_a_running_guard_logs_each_message_and_is_read_by_prometheus"],
        "federation/client/test_watching.py": [
            "test_charges_refusals_rounds_and_what_is_left_are_shown_as_the_ledger_has_them"
        ],
    },
    "rounds were not to be seen in TensorBoard, MLflow, Weights & Biases or Prometheus": {
        "federation/server/test_observers.py": [
            "test_tensorboard_reads_the_rounds_back",
            "test_mlflow_reads_the_rounds_back",
            "test_weights_and_biases_keeps_the_rounds_and_nothing_of_the_machine",
            "test_prometheus_reads_the_rounds_from_loopback",
        ]
    },
    "what cannot be counted failed after it was charged": {
        "federation/test_idioms.py": ["test_what_cannot_be_counted_is_declined_before_it_is_charged"]
    },
    "dict records, float64, torch's losses and optimisers, lr and peft's names failed with raw errors": {
        "federation/test_idioms.py": [
            "test_a_flower_user_s_task_is_trained_verified_and_counted",
            "test_flower_s_lr_is_the_order_s_learning_rate_and_nothing_is_said_twice",
            "test_a_server_may_start_from_what_peft_saves",
        ],
        "training/test_idioms.py": ["test_what_people_write_elsewhere_simply_works"],
        "commands/test_training.py": ["test_what_does_not_work_ends_in_one_sentence_with_what_to_write"],
    },
    "wrong files, full disks, terminals of ASCII and absurd numbers ended in tracebacks": {
        "commands/test_surface.py": [
            "test_every_command_and_every_path_of_it_is_in_the_table",
            "test_a_path_to_the_wrong_thing_is_one_sentence_and_changes_nothing",
            "test_an_absurd_number_is_one_sentence_and_changes_nothing",
            "test_a_terminal_of_ascii_is_told_the_same_by_every_command",
        ],
        "commands/test_full_disks.py": ["test_a_full_disk_is_one_sentence_and_the_same_line_works_once_there_is_room"],
        "commands/test_permissions.py": ["test_what_may_not_be_written_is_one_sentence_and_all_stays_as_it_is"],
        "commands/test_streams.py": ["test_an_answer_that_cannot_be_written_is_one_sentence"],
    },
    "commands of the documentation failed": {
        "test_docs.py": [
            "test_every_command_of_a_page_is_understood",
            "test_no_page_shows_a_verification_that_would_be_refused",
        ],
        INTEGRITY: ["test_a_servers_own_folder_is_searched_for_its_receipts"],
    },
    "a model file was not found to be proved once the registry had changed": {
        "commands/test_model.py": ["test_a_model_is_proved_after_the_registry_changed"]
    },
}


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("finding", FOUND)
def test_every_finding_has_its_tests(finding: str) -> None:
    missing = [
        f"{path}::{name}" for path, names in FOUND[finding].items() for name in names if name not in functions_of(path)
    ]
    assert missing == []
