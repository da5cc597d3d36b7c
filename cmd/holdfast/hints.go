package main

import (
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
)

// hintTexts has the text of every hint. ARG is a placeholder for the argument of the hint.
var hintTexts = map[holdfast.HintKind]string{
	holdfast.HintAdvice: "ARG",
	holdfast.HintRetry:  "try again; if the error persists, see docs/troubleshoot.md",

	holdfast.HintMigrate:         "run: holdfast migrate up",
	holdfast.HintMigrationStatus: "see: holdfast migrate status",
	holdfast.HintUpgrade:         "use a newer version of this program, which supports that schema",
	holdfast.HintGrant:           "run as the owner of the tables: ARG",
	holdfast.HintFindGrant:       "to find the missing right, run: holdfast doctor",
	holdfast.HintSessionSettings: "set them for the role with: alter role ARG set NAME = VALUE; see docs/poolers.md",

	holdfast.HintCreateDatabase:  "create it with: holdfast serve, holdfast enqueue or holdfast migrate up",
	holdfast.HintDatabaseAccess:  "give this user the right to read and write the file and its folder, or name another file in DATABASE_URL",
	holdfast.HintRestoreDatabase: "stop the server and restore a backup; without a backup, recover data with: sqlite3 ARG .recover; see docs/troubleshoot.md, The file is damaged",
	holdfast.HintReopenDatabase:  "stop every process that uses the file, then run: holdfast serve; see docs/troubleshoot.md, A file beside the database was deleted",
	holdfast.HintReturnDatabase:  "stop the server, move the file back or restore a backup, then run: holdfast serve",

	holdfast.HintSetDatabase:     "set DATABASE_URL, for example ARG",
	holdfast.HintCheckDatabase:   "check ARG in DATABASE_URL; to see where its value comes from: holdfast config show",
	holdfast.HintReachDatabase:   "check that the server is running, and the host and port in DATABASE_URL; to see where its value comes from: holdfast config show",
	holdfast.HintPrimary:         "connect to the primary, or name all hosts and add target_session_attrs=read-write to DATABASE_URL",
	holdfast.HintDirectURL:       "set database.direct_url to the server itself; see docs/poolers.md",
	holdfast.HintSetBroker:       "set AMQP_URL, for example ARG",
	holdfast.HintSetServers:      "set DATABASE_URL too, for example ARG, or unset AMQP_URL",
	holdfast.HintCheckBroker:     "check ARG in AMQP_URL; to see where its value comes from: holdfast config show",
	holdfast.HintReachBroker:     "check that RabbitMQ is running there, that AMQP_URL is correct, and that no firewall drops packets",
	holdfast.HintDeclareTopology: "start a janitor with holdfast serve, or run: holdfast topology apply",
	holdfast.HintReplaceQueue:    "stop all workers, delete ARG in RabbitMQ, then run: holdfast topology apply",
	holdfast.HintReadQuarantine:  "read the messages, then purge ARG; see docs/troubleshoot.md, Messages are in the quarantine",

	holdfast.HintServe:          "start one with: holdfast serve",
	holdfast.HintServeQueue:     "start one with: holdfast serve --queues ARG",
	holdfast.HintKnownQueues:    "the queues are: ARG",
	holdfast.HintUnsetLimit:     "to remove the limit with the same --queue, --type, --key, --target and --per: holdfast limit unset",
	holdfast.HintResumeQueue:    "to resume it: holdfast queue resume ARG",
	holdfast.HintResumeType:     "to resume it: holdfast type resume ARG",
	holdfast.HintResumeKey:      "to resume it: holdfast key resume 'ARG'",
	holdfast.HintResumeTarget:   "to resume it: holdfast target resume ARG",
	holdfast.HintListDead:       "see the causes: holdfast dead groups; to see one: holdfast dead show GROUP; to send its tasks again: holdfast dead retry --all --group GROUP",
	holdfast.HintBlockedKey:     "run the task again with: holdfast task retry ARG; or give it up with: holdfast task cancel ARG; to see all such keys: holdfast key list --dead",
	holdfast.HintHandleType:     "start a worker with a handler for ARG, or cancel the tasks; see them with: holdfast task list --type ARG",
	holdfast.HintServeJanitor:   "start one with: holdfast serve --roles janitor; without a janitor, tasks are neither retried nor handed back",
	holdfast.HintRecover:        "a running janitor repairs them within minutes; to do it now: holdfast recover --run",
	holdfast.HintNewAttempt:     "give the task a new attempt: holdfast task cancel ID, then: holdfast task retry ID",
	holdfast.HintAllRoles:       "leave out --roles, or set it to worker,janitor or worker,janitor,api; to split the roles, use PostgreSQL and RabbitMQ",
	holdfast.HintListen:         "set another address with: holdfast serve --listen HOST:PORT",
	holdfast.HintCreateToken:    "create a token with: holdfast token create NAME --role admin; or serve this machine only with: holdfast serve --listen 127.0.0.1:8480",
	holdfast.HintReadiness:      "for the reason, read /healthz/ready of ARG",
	holdfast.HintRestartWorkers: "restart every worker that was started before that, so that tasks it has finished since then run again; see docs/backup.md",
	holdfast.HintStopWorkers:    "stop every holdfast serve of this store with SIGTERM first; if the process no longer exists, start holdfast serve once and stop it",
	holdfast.HintFinishTasks:    "start holdfast serve, wait until no task is running, stop it with SIGTERM, then export again",
	holdfast.HintExportAgain:    "write the export again with: holdfast export",

	holdfast.HintResumeSchedule:  "see: holdfast schedule get ARG; to resume it: holdfast schedule resume ARG",
	holdfast.HintRestartSchedule: "to let it run from now on: holdfast schedule pause ARG, then: holdfast schedule resume ARG; moments of which the store has a task do not run again",
	holdfast.HintDeadSlices:      "see: holdfast dead list -q key:ARG; to pull the slices again: holdfast dead retry --all -q key:ARG",
	holdfast.HintSourceBehind:    "see: holdfast slice source get ARG",
	holdfast.HintStoppedBatch:    "see: holdfast batch get ARG; to run the failed tasks again: holdfast batch retry ARG; to go on without them: holdfast batch resume ARG",
	holdfast.HintOpenBatch:       "look at the program that adds its subtasks; to end it: holdfast batch cancel ARG",

	holdfast.HintDropOffsets: "to delete their offsets, add --drop-offsets; to see them: holdfast shard map get ARG",

	holdfast.HintSkipValidation: "if the handlers of your workers accept this payload, edit the task with: holdfast task edit --skip-validation",

	holdfast.HintAllowAddress: "to allow its network, give --allow-cidr CIDR both to holdfast serve and to holdfast enqueue, or set webhook.allow_cidrs for both",
	holdfast.HintAllowHost:    "if the secret may sign requests to the host, add the host to webhook.secret_hosts.ARG",

	holdfast.HintShowSettings: "to see where each value comes from: holdfast config show",
}

// hintText returns the text of a hint, and "" for the zero Hint.
func hintText(h holdfast.Hint) string {
	text := hintTexts[h.Kind]
	text = strings.ReplaceAll(text, "'ARG'", quoted(h.Arg))
	return strings.ReplaceAll(text, "ARG", h.Arg)
}

// quoted returns a text in quotes for a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// logHook completes a log entry: it adds the hint of an error, as the field hint, and removes the passwords of URLs.
type logHook struct{}

// Levels implements logrus.Hook.
func (logHook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (logHook) Fire(entry *logrus.Entry) error {
	err, _ := entry.Data[logrus.ErrorKey].(error)
	if text := hintText(holdfast.HintOf(err)); text != "" {
		entry.Data["hint"] = text
	}
	entry.Message = configs.RedactText(entry.Message)
	for name, value := range entry.Data {
		text, ok := value.(string)
		if err, is := value.(error); is {
			text, ok = err.Error(), true
		}
		if redacted := configs.RedactText(text); ok && redacted != text {
			entry.Data[name] = redacted
		}
	}
	return nil
}
