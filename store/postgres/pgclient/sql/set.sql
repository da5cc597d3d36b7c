-- Sets the settings $1 to the values $2: for the transaction if $3 is true, otherwise for the session.
select set_config(name, value, $3) from unnest($1::text[], $2::text[]) as setting (name, value)
