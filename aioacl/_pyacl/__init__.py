"""The drop-in module `acl`: the names, arguments and results of CANN's pyACL."""
