"""Claims driven by hand and by dice: conversations, random logs, a second reading of the rules."""
