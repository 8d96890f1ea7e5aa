"""The manifests of deploy/kubernetes, built by kustomize and held against strict schemas: `make kubernetes-test`."""
