"""Groups whose members write in transactions, and are killed; a reader outside of holdfast counts what they wrote."""
