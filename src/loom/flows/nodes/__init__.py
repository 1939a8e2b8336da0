"""Operations: what each family of actions does when the walk comes to it."""
