-- Whether the schema $1 exists, and the statement that permits this user to create it.
select exists (select from pg_namespace where nspname = $1) as present,
  format('grant create on database %I to %I', current_database(), current_user) as "grant"
