-- Whole tables are joined here, not a few rows looked up.
set local enable_hashjoin = on;
set local enable_mergejoin = on
