-- The rule for the tasks t that a claim takes, for {{claimable}} in the other files. $4 are the wanted types, and $5
-- how many crashes each type allows. live is empty if the run that claims is not live.
t.state = 'ready' and t.type = any($4::text[])
  and (t.crashes = 0 or t.crashes <= ($5::bigint[])[array_position($4::text[], t.type)])
  -- Its time has come. A due_at that is later then only postpones the next try to publish.
  and (t.due_at is null or t.due_at <= now() or t.next_run_at <= now())
  and exists (select from live)
