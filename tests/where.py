"""Where the evidence is for a module without a test file of its name: suites that fail if it breaks, nearest first.

They prove a property of several modules together, and carry the property's name. ``tests/test_house.py`` sees that
every module is here or has a namesake, and that no line is out of date.
"""

FLOOR = {
    "errors": ["test_house", "test_cli"],
    "version": ["test_cli", "test_deploy"],
}

ACCOUNTING = {
    "filter_rules": ["accounting/test_filters", "accounting/test_reserved_slots", "ledger/test_one_filter"],
}

MECHANISMS = {
    "base": ["accounting/mechanisms/test_mechanisms", "ledger/test_costliest"],
    "fixed_size": ["accounting/mechanisms/test_mechanisms", "accounting/test_brute_force"],
    "gaussian": ["accounting/mechanisms/test_mechanisms", "accounting/test_conversion"],
    "poisson": ["accounting/mechanisms/test_mechanisms", "accounting/test_brute_force", "accounting/test_peers"],
    "sampled": ["accounting/mechanisms/test_mechanisms", "ledger/test_costliest"],
    "rows_drawn": ["accounting/test_groups"],
    "sized": ["commands/test_steps", "accounting/test_planning"],
    "truncated_poisson": [
        "accounting/test_every_size",
        "accounting/test_runs_of_sizes",
        "accounting/mechanisms/test_mechanisms",
        "accounting/test_brute_force",
    ],
    "with_replacement": ["accounting/mechanisms/test_mechanisms", "accounting/test_reference_table"],
}

CODEC = {
    "formats": ["codec/test_codec", "integrity/test_decoders"],
    "parts": ["codec/test_codec"],
}

COMMANDS = {
    "blame": ["federation/server/test_blaming"],
    "pilot_app": ["commands/test_founding"],
    "pilot_compose": ["test_deploy"],
}

LEDGER = {
    "administration": ["ledger/test_heads", "ledger/test_rotation", "ledger/test_ledger"],
    "chain": ["ledger/test_books", "ledger/test_events", "ledger/test_damage"],
    "charges": ["ledger/test_ledger", "ledger/test_machine", "ledger/test_books"],
    "choice": ["ledger/test_one_filter", "ledger/test_machine"],
    "columns": ["ledger/test_fleet", "hostile/test_sizes"],
    "decisions": ["ledger/test_requests", "ledger/test_costliest", "ledger/test_shares"],
    "drafting": ["ledger/test_promises", "commands/test_init"],
    "journal": ["ledger/test_damage", "ledger/test_crashes", "ledger/test_ledger"],
    "key_files": ["ledger/test_heads", "ledger/test_rotation", "test_files"],
    "opening": ["ledger/test_promises"],
    "outbox": ["ledger/test_ledger", "ledger/test_damage", "ledger/test_machine"],
    "policy_file": ["ledger/test_policy"],
    "records": ["ledger/test_books", "ledger/test_refusals"],
    "reports": ["ledger/test_fleet", "ledger/test_rotation", "hostile/test_flips"],
    "request": ["ledger/test_requests", "test_births"],
    "signing": ["ledger/test_heads", "ledger/test_rotation"],
    "sqlite_errors": ["ledger/test_damage"],
    "starting": ["commands/test_init", "commands/test_peers", "ledger/test_rotation"],
    "store": ["ledger/test_damage", "ledger/test_crashes"],
    "summary": ["report/test_statement", "ledger/test_one_filter", "ledger/test_shares"],
    "tallies": ["ledger/test_shares", "ledger/test_refusals", "ledger/test_machine"],
    "toml_text": ["ledger/test_policy", "hostile/test_sizes"],
}

TRAINING = {
    "chance": ["training/test_gate", "training/test_unlooking"],
    "checked_records": ["training/test_data", "training/test_update"],
    "constants": ["training/test_refusals", "training/test_update"],
    "digests": ["training/test_gate"],
    "engine": ["training/test_models", "training/layers/test_layers", "training/test_adversary"],
    "evidence": ["training/test_gate"],
    "exactness": ["training/test_gate", "training/test_checked"],
    "independence": ["training/test_gate", "training/test_hostile"],
    "isolation": ["federation/test_replies", "training/test_gate"],
    "kernels": ["training/test_clipping"],
    "lineage": ["training/test_gate", "training/test_hostile"],
    "loading": ["commands/test_training"],
    "local_steps": ["training/test_update", "training/test_charges"],
    "looking": ["training/test_gate", "training/test_hostile"],
    "losses": ["training/test_idioms", "training/test_update"],
    "memory": ["training/test_inspection", "training/test_checked", "training/test_allocator"],
    "padding": ["training/test_data"],
    "parts": ["training/test_idioms", "training/test_data"],
    "passes": ["training/test_gate", "training/test_update"],
    "probes": ["training/test_checked", "training/test_gate"],
    "progress": ["training/test_inspection"],
    "records": ["training/test_data", "training/test_update"],
    "rounding": ["training/test_clipping", "training/test_adversary"],
    "schedules": ["training/test_inspection", "training/test_refusals"],
    "shapes": ["training/test_gate", "training/test_hostile"],
    "shelf": ["training/test_features"],
    "sizing": ["training/test_gate", "training/test_hostile"],
    "tape": ["training/test_models", "training/layers/test_layers"],
    "task": ["training/test_refusals", "training/test_idioms"],
    "tensors": ["training/test_data"],
    "terminals": ["training/test_models"],
    "torch_losses": ["training/test_idioms"],
    "torch_optimisers": ["training/test_idioms"],
    "trial": ["commands/test_training"],
    "verification": ["training/test_gate", "training/test_hostile", "training/test_zoo"],
    "widening": ["training/test_unlooking"],
}

GRADIENTS = {
    "convolved": ["training/layers/test_layers", "training/test_adversary"],
    "dense": ["training/layers/test_layers", "training/test_clipping"],
    "factored": ["training/layers/test_layers", "training/test_adversary"],
    "factors": ["training/test_models", "training/layers/test_layers"],
    "geometry": ["training/layers/test_layers"],
    "mixed": ["training/test_models", "training/test_adversary"],
    "protocol": ["training/test_live_bytes", "training/layers/test_layers"],
    "weighted": ["training/layers/test_layers", "training/test_models"],
}

LAYERS = {
    "attention": ["training/layers/test_layers", "training/test_models"],
    "batched": ["training/test_clipping", "training/test_gate"],
    "convolution": ["training/layers/test_layers"],
    "embedding": ["training/layers/test_layers", "training/test_models"],
    "fallback": ["training/layers/test_layers", "training/test_models"],
    "group_norm": ["training/layers/test_layers"],
    "linear": ["training/layers/test_layers", "training/test_models"],
    "normalisation": ["training/layers/test_layers"],
    "protocol": ["training/layers/test_layers", "training/test_models"],
    "recurrent": ["training/layers/test_layers", "training/test_models"],
    "refusals": ["training/test_inspection", "training/layers/test_layers"],
    "registry": ["training/layers/test_layers", "training/test_inspection"],
}

NOISE = {
    "chacha": ["training/noise/test_noise"],
    "compiled": ["training/noise/test_accelerator", "training/noise/test_noise"],
    "gaussian": ["training/noise/test_noise"],
    "grid": ["training/noise/test_noise"],
    "plain": ["training/noise/test_noise"],
}

INTEGRITY = {
    "checks": ["integrity/test_attacks", "integrity/test_tampering"],
    "client": ["integrity/test_absence", "integrity/test_exact", "integrity/test_attacks"],
    "commitments": ["integrity/test_attacks", "integrity/test_vectors"],
    "encoding": ["integrity/test_decoders", "integrity/test_vectors"],
    "field": ["integrity/test_sketch", "integrity/test_vectors"],
    "history": ["commands/test_integrity", "integrity/test_limits"],
    "keys": ["integrity/test_registry", "commands/test_integrity"],
    "masks": ["integrity/test_vectors", "integrity/test_exact"],
    "papers": ["integrity/test_depositions"],
    "receipts": ["integrity/test_attacks", "integrity/test_absence"],
    "schemes": ["integrity/test_sketch", "integrity/test_exact", "integrity/test_attacks"],
    "sealing": ["integrity/test_states", "integrity/test_limits"],
    "server": ["integrity/test_absence", "integrity/test_attacks", "integrity/test_rounds"],
    "session": ["integrity/test_fixed_point", "integrity/test_registry", "integrity/test_decoders"],
}

CLIENT = {
    "app": ["federation/test_process_entry", "federation/test_rounds"],
    "catching_up": ["federation/test_rounds", "federation/client/test_pins", "federation/test_state_machine"],
    "following": ["federation/test_rotation", "federation/test_rounds"],
    "forwarding": ["federation/client/test_guard", "federation/client/test_guard_users"],
    "home": ["federation/test_data_set_sizes", "federation/test_rounds"],
    "lineage": ["federation/test_hostile_rotation", "federation/test_rotation"],
    "local_task": ["federation/test_process_entry", "federation/test_idioms", "federation/test_data_set_sizes"],
    "masking": ["federation/test_masked_attacks", "federation/test_masked"],
    "opened_books": ["federation/test_faults", "federation/server/test_heads", "federation/test_masked_attacks"],
    "participant": ["federation/test_hostile_server", "federation/test_replies", "federation/test_state_machine"],
    "paying": ["federation/test_rounds", "federation/test_replies", "training/test_research"],
    "requests": ["federation/test_hostile_server", "federation/test_rounds"],
    "state_file": ["federation/client/test_standing", "federation/test_faults"],
    "trusted": ["federation/client/test_guard", "commands/test_guard"],
}

SERVER = {
    "archive": ["federation/test_rounds", "test_files", "hostile/test_sizes"],
    "convening": ["federation/test_retries", "federation/server/test_asking"],
    "coordinator": ["federation/test_rounds", "federation/client/test_pins"],
    "courier": ["federation/test_rounds", "federation/server/test_buffered"],
    "mask_keys": ["federation/test_hostile_hospital", "federation/test_masked"],
    "greeting": ["federation/server/test_round_clock"],
    "keeping": ["federation/server/test_resuming"],
    "model_shelf": ["federation/server/test_resuming", "federation/wire/test_model_averages"],
    "nodes": ["federation/test_rounds", "federation/server/test_buffered"],
    "pauses": ["federation/server/test_buffered"],
    "repetitions": ["federation/test_retries"],
    "revealing": ["federation/test_masked", "federation/test_masked_attacks"],
    "rotating": ["federation/test_rotation"],
    "round_report": ["federation/test_rounds", "test_screen"],
    "run_result": ["federation/server/test_asking", "federation/test_rounds"],
    "saved_state": ["federation/server/test_resuming"],
    "saving": ["federation/server/test_resuming"],
    "schemes": ["federation/test_masked", "federation/test_rounds"],
    "settling": ["federation/server/test_buffered", "federation/test_retries", "federation/test_rounds"],
    "strategy": ["federation/test_rounds", "federation/client/test_counting"],
    "terms": ["federation/client/test_pins", "federation/test_rounds"],
}

WIRE = {
    "averaging": ["federation/wire/test_model_averages"],
    "case_files": ["federation/server/test_blaming"],
    "disputing": ["federation/server/test_blaming", "federation/wire/test_questions"],
    "flower": ["federation/wire/test_questions", "federation/test_hostile_bytes"],
    "forms": ["federation/wire/test_questions"],
    "frames": ["federation/wire/test_questions", "federation/test_hostile_bytes", "federation/client/test_guard"],
    "layout": ["federation/wire/test_questions", "federation/test_adapters"],
    "masked": ["federation/test_masked_attacks", "federation/wire/test_questions"],
    "model_files": ["commands/test_model", "federation/wire/test_model_averages", "federation/server/test_resuming"],
    "orders": ["federation/wire/test_questions", "federation/test_hostile_server"],
    "requirements": ["commands/test_guard"],
    "shares": ["federation/client/test_counting"],
    "signing": ["federation/test_hostile_sessions", "federation/client/test_pins"],
    "sockets": ["federation/client/test_guard", "commands/test_guard"],
}

LOCAL = {
    "consortium": ["federation/local/test_cluster", "federation/test_rounds"],
    "exchanges": ["experiments/utility/test_training"],
    "in_process": ["federation/test_rounds", "federation/local/test_simulation"],
    "onnx_files": ["commands/test_model"],
}

REPORT = {
    "frontier_plot": ["commands/test_planning"],
    "frontier_table": ["commands/test_planning", "printed/test_accounting"],
    "plan_plot": ["commands/test_planning"],
    "plan_table": ["commands/test_planning", "printed/test_accounting"],
    "risk_plot": ["commands/test_accounting"],
    "run_table": ["printed/test_views", "test_screen"],
    "statement_pages": ["report/test_statement", "report/test_statement_in_a_browser", "printed/test_statements"],
    "statement_points": ["report/test_statement", "printed/test_statements"],
}

ROOMS = {
    "": FLOOR,
    "accounting": ACCOUNTING,
    "accounting/mechanisms": MECHANISMS,
    "codec": CODEC,
    "commands": COMMANDS,
    "ledger": LEDGER,
    "training": TRAINING,
    "training/gradients": GRADIENTS,
    "training/layers": LAYERS,
    "training/noise": NOISE,
    "integrity": INTEGRITY,
    "federation/client": CLIENT,
    "federation/server": SERVER,
    "federation/wire": WIRE,
    "federation/local": LOCAL,
    "report": REPORT,
}
EVIDENCE = {f"{room}/{module}".lstrip("/"): suites for room, table in ROOMS.items() for module, suites in table.items()}
