-- Waits for the sign $1, which the caller writes into the text: DO has no parameters. When lock_timeout is over it returns
-- as well, without an error that the server would log each time.
do $wait$
begin
  perform pg_advisory_lock(hashtext(value), $1) from holdfast.meta where key = 'incarnation';
exception when lock_not_available then null;
end
$wait$
