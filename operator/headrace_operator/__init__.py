"""The operator process: observe, plan, apply. A thin shell around `headrace.core.control`."""
