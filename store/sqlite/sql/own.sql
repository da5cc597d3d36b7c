-- No worker of the file lives: its runs are over, and every turn is free. ?1 is now.
update runs set state = 'dead', ended_at = ?1 where state = 'live';

delete from turns
