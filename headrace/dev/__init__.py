"""The embedded Kubernetes API and the supervisor behind `headrace dev`."""
