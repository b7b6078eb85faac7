"""A real Kubernetes for the tests, without Docker: built from its Go modules, run on loopback.

`programs` says what is built and how, `build` builds what is missing into `LAB_HOME/bin`, `api_server` runs etcd and
kube-apiserver for as long as a test needs them. Nothing is ever written into the checkout.
"""
