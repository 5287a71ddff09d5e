"""What runs at a hospital: it decides alone what is trained, what is charged and what leaves. Start at participant."""
