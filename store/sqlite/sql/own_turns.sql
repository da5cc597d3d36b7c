delete from turns
