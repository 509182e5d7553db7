//! Roles: which are suggested, which are assigned for good, who is the bootstrap, how many masters are enough.
