"""kalvi."""
