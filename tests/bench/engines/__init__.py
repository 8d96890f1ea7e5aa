"""The counting job of a worker in other stream processors, each in an environment of its own."""
