package sqlmutants

// role is a file of statements with the tests that must fail if a condition is lost.
type role struct {
	name  string   // of the file
	tests string   // the tests of package store/sqlite, as a pattern for the flag -run
	only  []string // the statements to take; empty takes all
	parts []string // the parts of statements that belong to the role
	// unfinished means that some mutants survive without a reason. The role runs only if the environment variable names it.
	unfinished bool
}

// roles has the roles in the order in which their mutants run.
var roles = []role{
	{name: "answers", tests: "^TestStore$/^Answers$"},
	{name: "settings", tests: "^TestStore$/^Settings$"},
	{name: "figures", tests: "^(TestStore|TestShifted)$/^(Figures|keeps_the_figures_of_a_day)$", parts: []string{"minute"}},
	{name: "tokens", tests: "^(TestStore|TestShifted)$/^(Tokens|records_the_use_of_a_token_after_a_minute)$"},
	{name: "operations", tests: "^TestStore$/^(Operations|Notices)$", parts: []string{"operations_wanted", "operations_by_id", "operations_active"}},
	{name: "deaths", parts: []string{"groups", "one_group"},
		tests: "^(TestStore|TestShifted|TestOutdatedDeaths|TestDeathsAtOneTime|TestUnknownGroups)$/^(Deaths|Groups|counts_the_deaths_of_the_last_hour)$"},
	{name: "notices", tests: "^(TestStore|TestShifted)$/^(Notices|forgets_announced_groups_after_some_time)$", parts: []string{"fingerprints"}},
	{name: "audit", tests: "^(TestStore|TestTagRows)$/^(Audit|Order|Operations|Settings)$",
		parts: []string{"audit_entries", "audit_entries_of_task", "audit_entries_of_operation", "audit_entries_of_subject"}},
	{name: "plans", tests: "^(TestStore|TestShifted)$/^(Plans|corrects_the_times_of_plans.*)$",
		parts: []string{"plans_in_states", "plans_with_ids", "plans_by_id", "not_counted"}},
	{name: "effects", tests: "^TestStore$/^Effects$"},
	{name: "patrol", tests: "^TestStore$/^(Fencing|Repair)$"},
	{name: "insert", tests: "^TestStore$/^Insert$", only: []string{"insert_release"}},
	{name: "breakers", tests: "^TestStore$/^Breakers$"},
	{name: "gates", tests: "^(TestStore|TestShifted)$/^(Gates|GateChanges|Breakers|Limits|Topics|forgets_breakers_that_nothing_uses)$",
		parts: []string{"forgotten"},
		only:  []string{"gates", "paused_queues", "gates_of", "gate_get", "gate_by_id", "gates_expire", "pause_expire", "gates_open"}},
	{name: "limits", unfinished: true, parts: []string{"permit_used"},
		tests: "^(TestShifted|TestStore)$/^(Limits|GateChanges|Gates|Breakers|a_permit_is_free_if_its_task_does_not_start_soon)$"},
	{name: "verify",
		tests: "^(TestShifted|TestStore|TestACheckReadsTheBlocksWithOpenTasks|TestACheckFindsLostRecords)$/^(verify.*|Verification|Gates|Order|Topics)$/" +
			"^(finds_(nothing|a_|tasks)|reads_all|counts_the|keeps_the_newest|verify_)",
		parts: []string{"idle_workers", "idle_for", "gateless", "pauses_queue"}},
}

// equivalent is a mutant that the tests of its role cannot find, or that SQLite refuses.
type equivalent struct {
	statement, mutant string // as the log has them
	why               string
	race              bool // whether a test of several processes may find it
}

// The reasons of several mutants.
const (
	noSecondSubject = "A pause has one queue, type, key or target, so the other conditions for the subject are enough."
	noWorker        = "A task that is not running has no worker."
	looksEarlier    = "A bucket that is read before its time gives no permit."
	removedLimit    = "The end of its task deletes the permit of a removed limit too."
	nullToo         = "The comparison that follows is null too."
	indexNeeded     = "SQLite refuses the statement, because the named index needs the condition."
	savesRead       = "The condition saves reading the tasks."
	makesRange      = "The condition makes the search a range of the primary key."
	onlyStep        = "The only step reads all ids."
	readAgain       = "The caller then reads the gates again, with gates_expired. The condition saves that transaction."
)

// equivalents has the mutants that no test of the role must find, with the reason. A mutant that a test finds must not be
// here, except for those of a race.
var equivalents = []equivalent{
	{statement: "figures", mutant: "figure {{in($4::text[])}} -> true", why: makesRange},
	{statement: "figures_prune", mutant: "f.figure = l.figure -> true", why: makesRange},
	{statement: "figures_prune", mutant: "f.queue = k.queue -> true", why: makesRange},
	{statement: "plan_fence", mutant: "state = 'running' -> true", why: noWorker},
	{statement: "data_save", mutant: "state = 'running' -> true", why: noWorker},
	{statement: "not_counted", mutant: "plan is null -> false", why: "No plan has the id null. The condition saves the look-up."},
	{statement: "plan_step", mutant: "$7::bigint = 0 -> true", why: "Without the lowest id of a member, a list reads more tasks."},
	{statement: "stored_settings", mutant: "m.value <> cast($2::bigint as text) -> true",
		why: "The caller ignores the settings of a version that it knows. The condition saves their transfer."},
	{statement: "settings_next_version", mutant: "key = $1 -> true",
		why: "No other row of the table has a version of settings as its value, because versions are times."},
	{statement: "settings_next_version", mutant: "value = cast($2::bigint as text) -> true",
		why: "The transaction has read the same version, and on SQLite no other transaction writes meanwhile."},
	{statement: "death_groups", mutant: "$4::bigint = 0 -> false", why: "Every time is later than 0."},
	{statement: "death_group_lock", mutant: "fingerprint = $1 -> true",
		why: "The statement is there for the lock, and the transactions of SQLite have locked everything. The caller reads the group again."},
	{statement: "groups", mutant: "$3 = '' -> true", why: "The caller uses this part only without a fingerprint."},
	{statement: "deaths_record", mutant: "t.dead_at = {{at(m.died_at)}} -> true", race: true,
		why: "It matters only if the task dies again between two transactions of one call."},
	{statement: "deaths_delete", mutant: "not exists (select 1 from tasks t where t.id = d.task_id and t.dead_at = d.died_at) -> true", race: true,
		why: "It matters only if the task dies again between two transactions of one call."},
	{statement: "deaths_keep", mutant: "excluded.first_at < g.first_at or excluded.last_at > g.last_at -> true",
		why: "The update then writes the values that are there."},
	{statement: "fingerprints", mutant: "fingerprint > $1 -> true",
		why: "A call reads 2000 groups, so that a second call follows only if there are more."},
	{statement: "fingerprints", mutant: "found.fingerprint is not null -> true",
		why: "It ends the recursion early. The limit ends it too, and the statements ignore null."},
	{statement: "notices_claim", mutant: "g.version = excluded.version -> true", race: true,
		why: "It matters only if a person changes the group between two transactions of one call."},
	{statement: "notices_stopped_claim", mutant: "unannounced_at is not null -> true", race: true,
		why: "It matters only if another process announces the operation between two transactions of one call."},
	{statement: "notices_well", mutant: "late_at is not null -> true",
		why: "The update then writes null where null is."},
	{statement: "edited", mutant: "task_id in (select value from json_each($1)) -> true",
		why: "No other task has a payload in both tables."},
	{statement: "edited", mutant: "id in (select value from json_each($1)) -> true",
		why: "The queues of the other tasks are stored."},
	{statement: "edited", mutant: "task_id in (select value from json_each($1)) #3 -> true",
		why: "The records of the other deaths have the queues of their tasks."},
	{statement: "audit_log", mutant: "$5::bigint = 0 -> false", why: "Every time is later than 0."},
	{statement: "audit_entries", mutant: "$1::bigint = 0 -> true",
		why: "The caller uses this part only without a task."},
	{statement: "audit_entries", mutant: "$9 = '' -> true", why: "The caller uses this part only without a subject."},
	{statement: "audit_entries_of_task", mutant: "$9 = '' -> false", why: "The entries of tasks have no subject."},
	{statement: "audit_entries_of_task", mutant: "subject = $9 -> false", why: "The entries of tasks have no subject."},
	{statement: "audit_entries_of_operation", mutant: "operation_id = $2::bigint -> true",
		why: "The statement has the condition too. This one lets it use the index."},
	{statement: "audit_entries_of_operation", mutant: "$1::bigint = 0 -> true",
		why: "The caller uses this part only without a task."},
	{statement: "audit_entries_of_subject", mutant: "subject <> '' -> true",
		why: "The subject is not empty. The condition lets SQLite use the index."},
	{statement: "audit_entries_of_subject", mutant: "$1::bigint = 0 -> true",
		why: "The caller uses this part only without a task."},
	{statement: "edit", mutant: "tasks.due_at = {{blocked}} -> true",
		why: "A task with a row in key_waits has this due time."},
	{statement: "edit", mutant: "tasks.ordered is not null -> true",
		why: "Only ordered tasks have rows in key_waits. The condition saves the look at them."},
	{statement: "edit", mutant: "w.key = tasks.key -> true",
		why: "All rows of a task have its key. The condition lets SQLite use the primary key."},
	{statement: "paused_queues", mutant: "queue <> '' -> true", why: noSecondSubject},
	{statement: "paused_queues", mutant: "type = '' -> true", why: noSecondSubject},
	{statement: "paused_queues", mutant: "key = '' -> true", why: noSecondSubject},
	{statement: "paused_queues", mutant: "target = '' -> true", why: noSecondSubject},
	{statement: "pauses_queue", mutant: "g.queue <> '' -> true", why: noSecondSubject},
	{statement: "pauses_queue", mutant: "g.type = '' -> true", why: noSecondSubject},
	{statement: "pauses_queue", mutant: "g.key = '' -> true", why: noSecondSubject},
	{statement: "pauses_queue", mutant: "g.target = '' -> true", why: noSecondSubject},
	{statement: "gates_open", mutant: "g.lifted_at is null -> true", why: readAgain},
	{statement: "gates_open", mutant: "g.until <= {{now}} -> true", why: readAgain},
	{statement: "gates_open", mutant: "{{forgotten}} -> true", why: readAgain},
	{statement: "gates_open", mutant: "exists (select 1 from buckets) or exists (select 1 from permits) -> true",
		why: "Without buckets and permits, the caller finds nothing to do. The condition saves that transaction."},
	{statement: "gates_open", mutant: "task_id in (select value from json_each($2)) -> true",
		why: "The caller then only looks for free permits earlier."},
	{statement: "gates_open", mutant: "(select l.lifted_at is null from gates l where l.id = b.gate_id) -> true",
		why: "A call that finds an opened gate releases its tasks and requests the next call at once, or deletes its buckets."},
	{statement: "forgotten", mutant: "g.kind = 'breaker' -> true", why: "Only breakers have a time of the next probe."},
	{statement: "verify_tickets", mutant: "q.drained_at is not null -> true", why: nullToo},
	{statement: "verify_tickets", mutant: "t.ticketed_at is not null -> true", why: nullToo},
	{statement: "verify_tickets", mutant: "t.id > $1 -> true", why: onlyStep},
	{statement: "verify_tickets", mutant: "t.id <= $2 -> true", why: onlyStep},
	{statement: "verify_due", mutant: "due_at < $2 - $1 -> true", why: indexNeeded},
	{statement: "verify_due", mutant: "exists (select 1 from idle) -> true", why: savesRead},
	{statement: "verify_open_range", mutant: "block >= $1 / {{block}} -> true",
		why: "Those blocks have no ids above $1. The condition saves their counters."},
	{statement: "verify_open_range", mutant: "id < (block + 1) * {{block}} -> true",
		why: "It matters only if the counters have a block whose tasks were deleted. The check then reads a later block too."},
	{statement: "verify_all", mutant: "t.state = 'running' #2 -> true", why: noWorker},
	{statement: "verify_all", mutant: "t.state = 'running' #3 -> true", why: noWorker},
	{statement: "verify_all", mutant: "w.state <> 'live' -> true",
		why: "Only a worker that has ended has the time of its end."},
	{statement: "verify_all", mutant: "t.state = 'ready' -> true", why: "Only ready tasks have a due time."},
	{statement: "verify_all", mutant: "t.state = 'ready' #2 -> true", why: "Only ready tasks have a due time."},
	{statement: "verify_suspicious", mutant: "t.worker_id is not null -> true", why: indexNeeded},
	{statement: "idle_workers", mutant: "types is not null -> true", why: "No type is in a list that is null."},
	{statement: "gateless", mutant: "t.ordered is not null -> true",
		why: "Only ordered tasks have rows in key_waits. The condition saves the look at them."},
	{statement: "gateless", mutant: "w.key = t.key -> true",
		why: "All rows of a task have its key. The condition lets SQLite use the primary key."},
	{statement: "gateless", mutant: "t.topic is not null -> true",
		why: "Only tasks with topics have rows in topic_tasks. The condition saves the look at them."},
	{statement: "limit_changed", mutant: "gate_id = $1 -> true", why: "The buckets of other gates are then only read more often."},
	{statement: "limits_of", mutant: "own.bucket = w.bucket -> true",
		why: "A task is blocked in the bucket of its key or target, which do not change while it is blocked."},
	{statement: "limits_of", mutant: "own.attempt = (select attempt from tasks where id = $1) -> true",
		why: "A change of the attempt of a blocked task deletes the row."},
	{statement: "permits_free", mutant: "(next_at = {{blocked}} or reserved_task is not null) -> true", why: looksEarlier},
	{statement: "permits_free", mutant: "reserved_task is not null -> false", why: "A bucket with a reservation is read again soon anyway."},
	{statement: "permits_free", mutant: "permit.task_id in (select value from json_each($1)) -> true", why: looksEarlier},
	{statement: "permits_free", mutant: "not {{permit_used}} -> true", why: looksEarlier},
	{statement: "permits_free", mutant: "permit.task_id in (select value from json_each($1)) #2 -> true",
		why: "The sweep deletes the free permits of the other tasks too. The condition saves reading all permits."},
	{statement: "permits_free", mutant: "not exists (select 1 from gates g where g.id = permit.gate_id and g.lifted_at is null) -> false",
		why: removedLimit},
	{statement: "permits_free", mutant: "g.id = permit.gate_id -> true", why: removedLimit},
	{statement: "permits_free", mutant: "g.lifted_at is null -> true", why: removedLimit},
	{statement: "permit_used", mutant: "g.type = '' -> true", why: noSecondSubject},
	{statement: "permit_used", mutant: "g.key = '' -> true", why: noSecondSubject},
	{statement: "permit_used", mutant: "g.target = '' -> true", why: noSecondSubject},
	{statement: "breakers", mutant: "g.target in (select value from json_each($1)) -> true",
		why: "The caller looks up the breakers by target."},
	{statement: "breakers_set", mutant: "gate_id in (select value ->> 'id' from json_each($1)) -> true",
		why: "The buckets of other gates are then only read more often."},
}
