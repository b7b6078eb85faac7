"""Leaders, seats and epochs of one partition."""
