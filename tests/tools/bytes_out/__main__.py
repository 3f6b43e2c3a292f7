"""Writes the table anew."""

from tests.tools.bytes_out import PAGE, page

PAGE.write_text(page())
