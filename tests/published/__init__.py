"""Published figures of steps, and the inputs that they belong to."""
