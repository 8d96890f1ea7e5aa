"""`make cluster-test`: three brokers, a Redis Cluster with replicas and three workers, broken and moved under load."""
