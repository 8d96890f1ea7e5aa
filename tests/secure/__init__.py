"""`make secure-test`: every command on services with TLS, passwords and access control, with its rights and without."""
