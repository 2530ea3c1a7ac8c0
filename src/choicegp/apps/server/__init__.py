"""The page on which people answer and an owner watches what is learned."""
