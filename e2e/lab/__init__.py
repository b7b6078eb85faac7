"""A real Kubernetes for the tests, without Docker: built from its Go modules.

`programs` says what is built and how, `build` builds what is missing into `LAB_HOME/bin`. `api_server` runs etcd and
kube-apiserver on loopback for as long as a test needs them, `cluster` a whole cluster in a network namespace, `images`
brings the project's images into it. Nothing is written into the checkout.
"""
