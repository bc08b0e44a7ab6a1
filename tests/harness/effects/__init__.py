"""Groups whose effects are in a PostgreSQL (`SqlPositions`): members, what befalls them, and what SQL says then."""
