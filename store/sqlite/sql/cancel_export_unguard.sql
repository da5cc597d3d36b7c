drop trigger exported_insert;
drop trigger exported_update;
drop trigger exported_delete;
drop trigger exported_attempt;
drop trigger exported_attempt_update;
drop trigger exported_attempt_delete
