"""How CoreDNS is told to answer for the cluster's services, on the node's address. It knows no other names."""

from pathlib import Path

from e2e.lab.network import NODE_ADDRESS


def corefile(kubeconfig: Path) -> str:
    return f""".:53 {{
  bind {NODE_ADDRESS}
  errors
  health 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    ttl 1
  }}
}}
"""
