package holdfast

import "errors"

// Hint is an action that a person can take about an error or a failed check. A hint is data: only the program that
// shows it knows the names of its commands, flags and settings, so that program writes the text. The zero value means
// that there is no hint.
type Hint struct {
	Kind HintKind
	Arg  string // depends on the kind
}

// HintKind is one kind of remedy.
type HintKind string

// The kinds of hints.
const (
	// HintAdvice concerns something outside of this program. Arg is the complete sentence.
	HintAdvice HintKind = "advice"
	// HintRetry: a later try may succeed.
	HintRetry HintKind = "retry"

	// HintMigrate: the schema is older than this build.
	HintMigrate HintKind = "migrate"
	// HintMigrationStatus: the version of the schema is unknown.
	HintMigrationStatus HintKind = "migration_status"
	// HintUpgrade: the schema is newer than this build.
	HintUpgrade HintKind = "upgrade"
	// HintGrant: privileges are missing. Arg is the SQL that grants them.
	HintGrant HintKind = "grant"
	// HintFindGrant: a privilege is missing. The doctor reports which one.
	HintFindGrant HintKind = "find_grant"
	// HintSessionSettings: a connection pooler drops the settings of a session. Arg is the role that needs them.
	HintSessionSettings HintKind = "session_settings"

	// HintCreateDatabase: there is no database file yet.
	HintCreateDatabase HintKind = "create_database"
	// HintDatabaseAccess: this user may not use the database file.
	HintDatabaseAccess HintKind = "database_access"
	// HintRestoreDatabase: the database file is damaged. Arg is its path.
	HintRestoreDatabase HintKind = "restore_database"
	// HintReturnDatabase: the database file was moved or deleted while it was in use.
	HintReturnDatabase HintKind = "return_database"
	// HintReopenDatabase: a file beside the database was deleted or changed while it was in use.
	HintReopenDatabase HintKind = "reopen_database"

	// HintSetDatabase: the setting for the database is missing or unusable. Arg is an example of a value.
	HintSetDatabase HintKind = "set_database"
	// HintCheckDatabase: the database refuses the connection. Arg names the parts of its URL to check.
	HintCheckDatabase HintKind = "check_database"
	// HintReachDatabase: the database does not answer.
	HintReachDatabase HintKind = "reach_database"
	// HintPrimary: the database is a standby.
	HintPrimary HintKind = "primary"
	// HintDirectURL: the connection uses a pooler. A direct connection is needed too.
	HintDirectURL HintKind = "direct_url"
	// HintSetBroker: the setting for the broker is missing. Arg is an example of a value.
	HintSetBroker HintKind = "set_broker"
	// HintSetServers: there is a broker, but no database server. Arg is an example of the URL of one.
	HintSetServers HintKind = "set_servers"
	// HintCheckBroker: the broker refuses the connection. Arg names the parts of its URL to check.
	HintCheckBroker HintKind = "check_broker"
	// HintReachBroker: the broker does not answer.
	HintReachBroker HintKind = "reach_broker"
	// HintDeclareTopology: AMQP queues or exchanges are missing.
	HintDeclareTopology HintKind = "declare_topology"
	// HintReplaceQueue: an AMQP queue has the wrong arguments. Arg is its name.
	HintReplaceQueue HintKind = "replace_queue"
	// HintReadQuarantine: there are messages in the quarantine queue. Arg is its name.
	HintReadQuarantine HintKind = "read_quarantine"

	// HintServe: no process runs tasks.
	HintServe HintKind = "serve"
	// HintServeQueue: no worker consumes a queue. Arg is its name.
	HintServeQueue HintKind = "serve_queue"
	// HintKnownQueues: a queue does not exist. Arg has the names of those that do.
	HintKnownQueues HintKind = "known_queues"
	// HintUnsetLimit: a change would leave a limit without a rate and a concurrency.
	HintUnsetLimit HintKind = "unset_limit"
	// HintResumeQueue: a queue is paused. Arg is its name.
	HintResumeQueue HintKind = "resume_queue"
	// HintResumeType: a task type is paused. Arg is the type.
	HintResumeType HintKind = "resume_type"
	// HintResumeKey: a key is paused. Arg is the key.
	HintResumeKey HintKind = "resume_key"
	// HintResumeTarget: a target is paused. Arg is the target.
	HintResumeTarget HintKind = "resume_target"
	// HintResumeSchedule: a schedule has paused itself. Arg is its name.
	HintResumeSchedule HintKind = "resume_schedule"
	// HintRestartSchedule: a schedule waits for a time before which the clock was set back. Arg is its name.
	HintRestartSchedule HintKind = "restart_schedule"
	// HintDeadSlices: slices of a source are dead. Arg is the key of their tasks.
	HintDeadSlices HintKind = "dead_slices"
	// HintSourceBehind: a source has many slices that are not pulled. Arg is its name.
	HintSourceBehind HintKind = "source_behind"
	// HintStoppedBatch: a batch has stopped because of failures. Arg is its id.
	HintStoppedBatch HintKind = "stopped_batch"
	// HintOpenBatch: an open batch gets no more subtasks, and is not sealed. Arg is its id.
	HintOpenBatch HintKind = "open_batch"
	// HintListDead: there are dead tasks.
	HintListDead HintKind = "list_dead"
	// HintBlockedKey: a dead ordered task blocks its key. Arg is the id of the task.
	HintBlockedKey HintKind = "blocked_key"
	// HintHandleType: no worker has a handler for a task type. Arg is the type.
	HintHandleType HintKind = "handle_type"
	// HintServeJanitor: no janitor is running.
	HintServeJanitor HintKind = "serve_janitor"
	// HintRecover: a janitor, or one recovery by hand, repairs the tasks.
	HintRecover HintKind = "recover"
	// HintNewAttempt: a new attempt of the task, after it was cancelled, repairs it.
	HintNewAttempt HintKind = "new_attempt"
	// HintAllRoles: the process that serves a file needs the roles worker and janitor.
	HintAllRoles HintKind = "all_roles"
	// HintListen: the address of the endpoints cannot be used.
	HintListen HintKind = "listen"
	// HintCreateToken: the HTTP API has no tokens, and programs of other machines could use it.
	HintCreateToken HintKind = "create_token"
	// HintReadiness: a worker does not consume all its queues. Arg is the name of the worker.
	HintReadiness HintKind = "readiness"
	// HintRestartWorkers: the store has lost commits, for example because a backup was restored.
	HintRestartWorkers HintKind = "restart_workers"
	// HintStopWorkers: all workers must be stopped first.
	HintStopWorkers HintKind = "stop_workers"
	// HintFinishTasks: running tasks must finish first.
	HintFinishTasks HintKind = "finish_tasks"
	// HintExportAgain: an export is incomplete.
	HintExportAgain HintKind = "export_again"

	// HintDropOffsets: a new shard map lacks shards that have offsets. Arg is the name of the job.
	HintDropOffsets HintKind = "drop_offsets"

	// HintSkipValidation: an edit can skip the validation of the payload.
	HintSkipValidation HintKind = "skip_validation"

	// HintAllowAddress: a setting can permit requests to the address.
	HintAllowAddress HintKind = "allow_address"
	// HintAllowHost: a setting lists the hosts to which requests may be signed with a secret. Arg is the name of the
	// secret.
	HintAllowHost HintKind = "allow_host"

	// HintShowSettings: the value of a setting is not valid.
	HintShowSettings HintKind = "show_settings"
)

// Advice returns a hint about something outside of this program.
func Advice(text string) Hint { return Hint{Kind: HintAdvice, Arg: text} }

// WithHint returns err with a hint. The text of the error does not change. WithHint returns nil if err is nil.
func WithHint(err error, hint Hint) error {
	if err == nil {
		return nil
	}
	return &hinted{err, hint}
}

// HintOf returns the hint of err, or the zero value if it has none. If several errors in its tree have a hint, HintOf
// returns the first one that errors.As finds.
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
