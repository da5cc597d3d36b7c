-- +goose Up

-- The target of a task of type http, as holdfast.TargetOf computes it. '' if there is none. A URL of more than
-- holdfast.MaxURLLength bytes and a host of more than holdfast.MaxHostLength bytes have none, so that the name of a bucket
-- fits into an index. Regular expressions are slow, so target_of uses them only for a short text.
--
-- PostgreSQL cannot read the escapes \u0000 and \ud800 to \udfff without their other half. If reading fails, target_of
-- makes text of all escapes that begin with \u, and reads the payload again. In the URL it then replaces those that
-- PostgreSQL cannot read, so that holdfast.TargetOf computes the same target.
-- +goose StatementBegin
create or replace function target_of(type text, payload json) returns text
language plpgsql immutable cost 1 set search_path from current as $$
declare
  url    text;
  scheme text;
  parts  text[];
  port   text;
begin
  if type <> 'http' or json_typeof(payload) <> 'object' then
    return '';
  end if;
  begin
    url := last_url(payload);
  exception when data_exception then
    url := (
      select value from json_each_text(replace(replace(payload::text, '\\', '\u005c'), '\u', '\\u')::json) with ordinality
      where length(key) <= 18 and key ~ '^(u|U|\\u00[57]5)(r|R|\\u00[57]2)(l|L|\\u00[46][cC])$' and value is not null
      order by ordinality desc
      limit 1
    );
    if length(url) > 6 * 8192 then
      return '';
    end if;
    url := replace(replace(to_json(url)::text, '\\u', '\u'), '\u0000', '\u0001');
    url := regexp_replace(url, '\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})', '\\h\1\\l\2', 'g'); -- pairs
    url := regexp_replace(url, '\\u[dD][89a-fA-F][0-9a-fA-F]{2}', '\\ufffd', 'g');
    url := replace(replace(url, '\h', '\u'), '\l', '\u')::json #>> '{}';
  end;
  if url is null or octet_length(url) > 8192 then
    return '';
  end if;
  scheme := lower(split_part(url, '://', 1) collate "C");
  if scheme not in ('http', 'https') then
    return '';
  end if;
  parts := regexp_match(split_part(split_part(split_part(substr(url, length(scheme) + 4), '/', 1), '?', 1), '#', 1),
    '^([^@:%\[\]\\^`{|}\u0001-\u0020\u007f]+|\[[0-9a-fA-F:.]+\])(?::([0-9]*))?$');
  if parts is null or octet_length(parts[1]) > 253 then
    return '';
  end if;
  port := case when parts[2] <> '' then ltrim(parts[2], '0') when scheme = 'https' then '443' else '80' end;
  if length(port) > 5 or port = '' or port::integer > 65535 then
    return '';
  end if;
  return scheme || '://' || lower(parts[1] collate "C") || ':' || port;
exception when data_exception or statement_too_complex then
  return '';
end
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
create or replace function target_of(type text, payload json) returns text
language plpgsql immutable cost 1 set search_path from current as $$
declare
  url   text;
  parts text[];
begin
  if type <> 'http' or json_typeof(payload) <> 'object' then
    return '';
  end if;
  begin
    url := last_url(payload);
  exception when data_exception then
    url := last_url(regexp_replace(payload::text, '\\u(0000|[dD][89abABcdefCDEF][0-9a-fA-F]{2})', '\\u0020', 'g')::json);
  end;
  parts := regexp_match(url, '^(https?)://([^/?#@:%\[\]]+|\[[0-9a-f:.]+\])(?::([0-9]*))?(?:[/?#]|$)', 'i');
  if parts is null then
    return '';
  end if;
  return lower(parts[1]) || '://' || lower(parts[2] collate "C") || ':'
    || coalesce(nullif(ltrim(parts[3], '0'), ''), case when lower(parts[1]) = 'https' then '443' else '80' end);
exception when data_exception then
  return '';
end
$$;
-- +goose StatementEnd
