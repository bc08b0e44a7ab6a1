"""Tools, for the command line only: advice, the report on an audit, pictures of plans. No consumer imports them."""
