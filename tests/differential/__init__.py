"""The kernel against the oracle on random deployments."""
