"""The operator's plan: desired and observed state in, actions out."""
