"""The demo: a small Flask app on SQLite whose sign-in authguard protects."""
