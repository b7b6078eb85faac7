"""For all tests: hypothesis without a clock, since a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
