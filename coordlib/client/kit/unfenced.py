"""Who uses a transport and guards nothing: questions of operators and producers."""


class Unfenced:
    """Has no fence, so no reading of it is ever too old."""

    def reading_lasts_ms(self) -> int | None:
        """As `transport.Handler` has it."""
        return None
