"""What all commands share: where the stack is, output, options."""
