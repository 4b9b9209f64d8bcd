"""How a verdict is reached: ``decide`` takes the first method that reaches one."""
