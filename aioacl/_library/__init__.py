"""Finds and loads the ACL library of this process, and reports what the library can do."""
