"""ChasquiMQ's queues: fed, worked and scheduled by this package, beside its Rust, Node and Python processes."""
