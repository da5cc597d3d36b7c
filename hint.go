package holdfast

import "errors"

// Hint says what a person can do about an error or a failed check. It is data: the program that shows it to a person
// finds the words, because only that program knows the names of its commands, flags and settings. The zero value means
// that there is nothing to do.
type Hint struct {
	Kind HintKind
	Arg  string // what the kind needs; see the kinds
}

// HintKind names one thing to do.
type HintKind string

// The kinds of hints.
const (
	// HintAdvice is about something outside of this program. Arg is the whole sentence.
	HintAdvice HintKind = "advice"
	// HintRetry: nothing is known but that a later try may help.
	HintRetry HintKind = "retry"

	// HintMigrate: the schema is older than this build.
	HintMigrate HintKind = "migrate"
	// HintMigrationStatus: the version of the schema is unknown.
	HintMigrationStatus HintKind = "migration_status"
	// HintUpgrade: the schema is newer than this build.
	HintUpgrade HintKind = "upgrade"
	// HintGrant: rights are missing. Arg is the SQL that grants them.
	HintGrant HintKind = "grant"
	// HintFindGrant: a right is missing, and the doctor says which.
	HintFindGrant HintKind = "find_grant"
	// HintSessionSettings: a connection pooler drops settings of the session. Arg is the role that needs them.
	HintSessionSettings HintKind = "session_settings"

	// HintCreateDatabase: there is no database file yet.
	HintCreateDatabase HintKind = "create_database"
	// HintDatabaseAccess: this user may not use the database file.
	HintDatabaseAccess HintKind = "database_access"
	// HintRestoreDatabase: the database file is damaged. Arg is its path.
	HintRestoreDatabase HintKind = "restore_database"
	// HintReturnDatabase: the database file was moved or deleted while it was in use.
	HintReturnDatabase HintKind = "return_database"

	// HintSetDatabase: the setting for the database is missing or unusable. Arg is an example of a value.
	HintSetDatabase HintKind = "set_database"
	// HintCheckDatabase: the database refuses the connection. Arg names the parts of its URL to check.
	HintCheckDatabase HintKind = "check_database"
	// HintReachDatabase: the database does not answer.
	HintReachDatabase HintKind = "reach_database"
	// HintPrimary: the database is a standby.
	HintPrimary HintKind = "primary"
	// HintDirectURL: the connection leads through a pooler, and a direct one is needed too.
	HintDirectURL HintKind = "direct_url"
	// HintSetBroker: the setting for the broker is missing. Arg is an example of a value.
	HintSetBroker HintKind = "set_broker"
	// HintSetServers: there is a broker, but no database server. Arg is an example of the URL of one.
	HintSetServers HintKind = "set_servers"
	// HintCheckBroker: the broker refuses the connection. Arg names the parts of its URL to check.
	HintCheckBroker HintKind = "check_broker"
	// HintReachBroker: the broker does not answer.
	HintReachBroker HintKind = "reach_broker"
	// HintDeclareTopology: queues or exchanges are missing in the broker.
	HintDeclareTopology HintKind = "declare_topology"
	// HintReplaceQueue: a queue has other arguments than it needs. Arg is its name.
	HintReplaceQueue HintKind = "replace_queue"
	// HintReadQuarantine: there are messages in quarantine. Arg is the queue.
	HintReadQuarantine HintKind = "read_quarantine"

	// HintServe: no process runs tasks.
	HintServe HintKind = "serve"
	// HintServeQueue: no worker consumes a queue of tasks. Arg is its name.
	HintServeQueue HintKind = "serve_queue"
	// HintServeJanitor: no janitor is at work.
	HintServeJanitor HintKind = "serve_janitor"
	// HintAllRoles: the process that serves a file needs all roles.
	HintAllRoles HintKind = "all_roles"
	// HintListen: the address of the endpoints cannot be used.
	HintListen HintKind = "listen"
	// HintReadiness: a worker does not consume what it should. Arg names the worker.
	HintReadiness HintKind = "readiness"
	// HintRestartWorkers: the store has lost commits, as after the restore of a backup.
	HintRestartWorkers HintKind = "restart_workers"
	// HintStopWorkers: workers must end first.
	HintStopWorkers HintKind = "stop_workers"
	// HintFinishTasks: tasks that run must end first.
	HintFinishTasks HintKind = "finish_tasks"
	// HintExportAgain: an export is not complete.
	HintExportAgain HintKind = "export_again"

	// HintAllowAddress: a setting can permit requests to the address.
	HintAllowAddress HintKind = "allow_address"
	// HintAllowHost: a setting lists the hosts that a secret may sign requests to. Arg is the name of the secret.
	HintAllowHost HintKind = "allow_host"

	// HintShowSettings: a setting has a value that cannot be used.
	HintShowSettings HintKind = "show_settings"
)

// Advice returns a hint about something outside of this program.
func Advice(text string) Hint { return Hint{Kind: HintAdvice, Arg: text} }

// WithHint returns err with a hint. The text of the error stays as it is. WithHint returns nil if err is nil.
func WithHint(err error, hint Hint) error {
	if err == nil {
		return nil
	}
	return &hinted{err, hint}
}

// HintOf returns the hint of err, the zero value if it has none. If several errors in its tree have one, HintOf returns
// the first that errors.As meets.
func HintOf(err error) Hint {
	h, ok := errors.AsType[*hinted](err)
	if !ok {
		return Hint{}
	}
	return h.hint
}

type hinted struct {
	error
	hint Hint
}

func (h *hinted) Unwrap() error { return h.error }
