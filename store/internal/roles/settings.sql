-- name: stored_settings
-- The version of the settings, which has the key $1. If it differs from $2, the rows also have all settings. If there
-- are no settings, the only row has an empty key.
select cast(m.value as bigint) as version, coalesce(s.key, '') as key, coalesce(s.value, '') as value
from holdfast.meta m left join holdfast.settings s on m.value <> cast($2::bigint as text)
where m.key = $1

-- name: settings_next_version
-- Increases the version $2. Returns no row if $2 is not the current version. It locks the row, so that other changes
-- wait.
update holdfast.meta
set value = cast(greatest(cast(value as bigint) + 1 + {{random_step}}, {{micros({{clock}})}}) as text)
where key = $1 and value = cast($2::bigint as text)
returning cast(value as bigint) as version

-- name: setting_set
insert into holdfast.settings (key, value) values ($1, $2)
on conflict (key) do update set value = excluded.value

-- name: setting_unset
delete from holdfast.settings where key = $1

-- name: secret
select value from holdfast.meta where key = $1

-- name: secret_create
-- Stores the secret $2, unless there is one.
insert into holdfast.meta (key, value) values ($1, $2) on conflict do nothing

-- name: incarnation
select value from holdfast.meta where key = 'incarnation'
