-- They bind every process, also one that has had the file open for days. Nobody pays for them otherwise.
create trigger exported_insert before insert on tasks begin select raise(abort, 'exported'); end;
create trigger exported_update before update on tasks begin select raise(abort, 'exported'); end;
create trigger exported_delete before delete on tasks begin select raise(abort, 'exported'); end;
create trigger exported_attempt before insert on attempts begin select raise(abort, 'exported'); end;
create trigger exported_attempt_update before update on attempts begin select raise(abort, 'exported'); end;
create trigger exported_attempt_delete before delete on attempts begin select raise(abort, 'exported'); end
