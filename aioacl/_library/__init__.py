"""The ACL library of this process: finding it, loading it, and what it can do."""
