"""What runs at the server: it orders, sums and publishes, and is believed by nobody. Start at coordinator."""
