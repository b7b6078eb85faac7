"""Consumer groups, the broker's side: the shell around `headrace.core.groups` (docs/adr/0014)."""
