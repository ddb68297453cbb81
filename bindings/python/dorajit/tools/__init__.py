"""What is used beside training: the command line, budgets of memory."""
