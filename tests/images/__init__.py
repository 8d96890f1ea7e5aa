"""`make image-test`: the two images are built from the shipped Dockerfile and run on a read-only root."""
