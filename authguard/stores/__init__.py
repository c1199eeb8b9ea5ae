"""Where the logs live: Valkey in production, memory as the tests' oracle."""
