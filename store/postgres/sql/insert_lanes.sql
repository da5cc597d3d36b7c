insert into holdfast.lanes (name) select unnest($1::text[]) on conflict do nothing
