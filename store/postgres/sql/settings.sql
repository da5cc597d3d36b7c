-- name: stored_settings
-- The version of the settings, which has the key $1, with all settings if $2 is another version. Without settings, the
-- only row has no key.
select m.value::bigint as version, coalesce(s.key, '') as key, coalesce(s.value, '') as value
from holdfast.meta m left join holdfast.settings s on m.value <> $2::bigint::text
where m.key = $1

-- name: settings_next_version
-- Increases the version $2. Returns no row if it is not the current version. Locks out other changes. The step is random,
-- so that no version is used again after a failover that lost commits.
update holdfast.meta
set value = greatest(value::bigint + 1 + floor(random() * 1000)::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint)::text
where key = $1 and value = $2::bigint::text
returning value::bigint as version

-- name: setting_set
insert into holdfast.settings (key, value) values ($1, $2)
on conflict (key) do update set value = excluded.value

-- name: setting_unset
delete from holdfast.settings where key = $1
