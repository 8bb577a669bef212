"""What all tests share: pytester runs pytest inside a test."""

pytest_plugins = ["pytester"]
