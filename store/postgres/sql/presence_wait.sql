-- Waits for the lock whose second number is in the session's setting presence.key, because DO takes no parameters. It
-- also returns after lock_timeout, without an error, because the server would log each error.
do $wait$
begin
  perform pg_advisory_lock(hashtext(value), current_setting('presence.key')::int) from holdfast.meta where key = 'incarnation';
exception when lock_not_available then null;
end
$wait$
