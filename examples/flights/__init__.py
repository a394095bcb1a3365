"""Every flight that left New York in 2013: from raw tables to a report on its delays."""
