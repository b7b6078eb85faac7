"""The broker process: storage, coordination, HTTP routes, metrics. A thin shell around `headrace.core`."""
