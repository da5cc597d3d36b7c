-- Waits for the sign whose number is in the setting presence.sign of the session: DO has no parameters. When lock_timeout
-- has passed it returns as well, without an error that the server would log each time.
do $wait$
begin
  perform pg_advisory_lock(hashtext(value), current_setting('presence.sign')::int) from holdfast.meta where key = 'incarnation';
exception when lock_not_available then null;
end
$wait$
