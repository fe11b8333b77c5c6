"""Training: two loops around the same update, one compiled whole, for pure environments, and one for all others."""
