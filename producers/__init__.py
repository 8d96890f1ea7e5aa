"""What runs on a device, and simulated fleets of devices. This package owns the survey files and the wire format."""
