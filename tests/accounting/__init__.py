"""The accountant held to its oracles, its peers and its promises."""
