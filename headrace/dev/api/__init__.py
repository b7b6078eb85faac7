"""The embedded Kubernetes API of `headrace dev`: the part that kubectl, kopf and `kubernetes.aio` need, over one SQLite
file.

    __main__ -> server -> routes, requests        the aiohttp shell, and what a request asks for
                       -> logs, proxy             `kubectl logs`, and the way to Services and Pods
                -> operations                     create, get, list, replace, patch, delete
                   -> strategy, validation, schemas, object_meta, patches, listing
                   -> server_side_apply, managed_fields, field_sets
                   -> store                       state, resourceVersions, what watchers may still ask for
                -> collector                      the controllers that a bare API server leaves to others
                -> kinds, builtin, definitions    what is known of each kind
                -> discovery, openapi, tables     how objects and kinds are shown

Everything runs on one event loop and no operation awaits between its check and its write, so each is atomic. Where this
API and a real kube-apiserver differ, this one is wrong: `tests/contract` runs against both.
"""
