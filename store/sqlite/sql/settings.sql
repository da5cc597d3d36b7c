-- name: stored_settings
-- The version of the settings, which has the key ?1, with all settings if ?2 is another version. Without settings, the
-- only row has no key.
select cast(m.value as integer) as version, coalesce(s.key, '') as key, coalesce(s.value, '') as value
from meta m left join settings s on m.value <> cast(?2 as text)
where m.key = ?1

-- name: settings_next_version
-- Increases the version ?2; ?3 is now. Returns no row if it is not the current version.
update meta
set value = cast(max(cast(value as integer) + 1, ?3) as text)
where key = ?1 and value = cast(?2 as text)
returning cast(value as integer) as version

-- name: setting_set
insert into settings (key, value) values (?1, ?2)
on conflict (key) do update set value = excluded.value

-- name: setting_unset
delete from settings where key = ?1
