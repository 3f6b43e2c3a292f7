"""What every check raises."""


class Violation(AssertionError):
    """A promise was broken; the text says which, and how it was seen."""
